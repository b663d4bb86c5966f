"""Seeds valid for Python's, NumPy's and PyTorch's random generators."""

import argparse

# NumPy takes 32 bits, and fairseq adds the epoch or update.
LARGEST_SEED = 2**31 - 1


def parse_seed(text: str, option: str = "--seed") -> int:
    """Parse a seed, as a type for argparse.

    Raises:
        argparse.ArgumentTypeError: not an integer from 0 to `LARGEST_SEED`.
    """
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEED):
        raise argparse.ArgumentTypeError(
            f"`{option}` must be an integer from 0 to {LARGEST_SEED}, but is {text!r}."
        )
    return int(text)
