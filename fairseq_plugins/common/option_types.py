"""Types of options for argparse: seeds, numbers and lists; errors name option and value."""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from pathlib import Path

# NumPy takes 32 bits, and fairseq adds the epoch or update.
LARGEST_SEED = 2**31 - 1


def parse_seed(text: str, option: str = "--seed") -> int:
    """Parse a seed, valid for Python's, NumPy's and PyTorch's random generators."""
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEED):
        raise ArgumentTypeError(
            f"`{option}` must be an integer from 0 to {LARGEST_SEED}, but is {text!r}."
        )
    return int(text)


def words(option: str, known: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """Return a type for comma-separated words, each once, among `known` if given."""

    def parse(text: str) -> list[str]:
        chosen = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
        if not chosen:
            raise ArgumentTypeError(f"`{option}` must name at least one, but is empty.")
        for word in chosen:
            if known and word not in known:
                raise ArgumentTypeError(
                    f"`{option}` must be among {', '.join(known)}, but has {word!r}."
                )
        return chosen

    return parse


def seeds(text: str) -> list[int]:
    """Parse comma-separated seeds, each once."""
    return list(dict.fromkeys(parse_seed(word, "--seeds") for word in words("--seeds")(text)))


def factors(text: str) -> tuple[int, ...]:
    """Parse comma-separated multiples of the training length, like 2x; each once, sorted."""
    found = words("--lengths")(text)
    for word in found:
        if not re.fullmatch(r"[1-9][0-9]{0,3}x", word, re.ASCII):
            raise ArgumentTypeError(f"`--lengths` must be like 1x,2x, but has {word!r}.")
    return tuple(sorted(int(word.removesuffix("x")) for word in found))


def numbers(option: str, least: int) -> Callable[[str], tuple[int, ...]]:
    """Return a type for comma-separated integers of at least `least`, each once."""

    def parse(text: str) -> tuple[int, ...]:
        texts = text.split(",")
        if not all(w.isascii() and w.isdigit() and int(w) >= least for w in texts):
            raise ArgumentTypeError(
                f"{option} must be numbers from {least} on joined by commas, but is {text!r}."
            )
        return tuple(dict.fromkeys(map(int, texts)))

    return parse


def number(option: str, least: int) -> Callable[[str], int]:
    """Return a type for an integer from `least` to 10^9 - 1."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or int(text) < least:
            raise ArgumentTypeError(f"`{option}` must be at least {least}, but is {text!r}.")
        return int(text)

    return parse


def new_folder(text: str) -> Path:
    """Parse a folder that is there or can be made."""
    path = Path(text)
    _check_folder(path, "must be a folder")
    return path


def new_file(text: str) -> Path:
    """Parse a file to write, in a folder that is there or can be made, or a device or pipe."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"must be a file, but {path} is a folder")
    _check_folder(path.parent, "must be a file in a folder")
    is_replaced = path.is_file() or not path.exists()  # by a file that is written beside it
    if is_replaced and path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise ArgumentTypeError(f"must be in a folder that can be written to, not {path.parent}")
    return path


def _check_folder(folder: Path, must: str) -> None:
    whole = folder.absolute()
    known = next(path for path in (whole, *whole.parents) if os.path.exists(path))
    if not known.is_dir():
        raise ArgumentTypeError(f"{must}, but {known} is a file")
    if known != whole and not os.access(known, os.W_OK):
        raise ArgumentTypeError(f"{must}, but {folder} cannot be made")
