"""Seeds that every generator of random numbers takes: Python's, NumPy's and PyTorch's."""

import argparse

# NumPy takes 32 bits, and fairseq adds the number of the epoch or update.
LARGEST_SEED = 2**31 - 1


def parse_seed(text: str, option: str = "--seed") -> int:
    """A type of argparse's.

    Raises:
        argparse.ArgumentTypeError: no integer from 0 to `LARGEST_SEED`.
    """
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEED):
        raise argparse.ArgumentTypeError(
            f"`{option}` must be an integer from 0 to {LARGEST_SEED}, but is {text!r}."
        )
    return int(text)
