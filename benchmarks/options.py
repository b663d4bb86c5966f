"""Options that the programs share."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

DEVICES = ("cpu", "gpu")


def add_options(parser: argparse.ArgumentParser, quick: str) -> None:
    """The options that say where and how; ``quick`` is the help of `--quick`."""
    add = parser.add_argument
    add("--device", choices=DEVICES, default="cpu", help="(default: cpu, one thread)")
    add("--quick", action="store_true", help=quick)
    add("--force", action="store_true", help="measure again what is done")
    add_machine(parser)
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="in place of the repository (default with --quick: outputs/benchmarks)",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The option that says whose results they are."""
    parser.add_argument(
        "--machine",
        type=folder_name("--machine"),
        metavar="NAME",
        help="keep the results in benchmarks/results/NAME, those of Table 9 too (default: the name "
        "of the processor, and Table 9 in results/table9)",
    )


def folder_name(option: str) -> Callable[[str], str]:
    """A type for a word that can be a folder among others."""

    def parse(word: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", word):
            raise argparse.ArgumentTypeError(
                f"`{option}` must be letters, digits, dots, hyphens and underscores, but is "
                f"{word!r}."
            )
        return word

    return parse
