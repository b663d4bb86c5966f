"""Options shared by the benchmark programs."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

DEVICES = ("cpu", "gpu")


def add_options(parser: argparse.ArgumentParser, quick: str) -> None:
    """Add the options of device, machine and output; ``quick`` is the help of `--quick`."""
    add = parser.add_argument
    add("--device", choices=DEVICES, default="cpu", help="(default: cpu, one thread)")
    add("--quick", action="store_true", help=quick)
    add("--force", action="store_true", help="measure again what is done")
    text = "folder in place of the repository (default with --quick: outputs/benchmarks)"
    add("--output", type=Path, metavar="DIR", help=text)
    add_machine(parser)


def add_machine(parser: argparse.ArgumentParser, output: Path | None = None) -> None:
    """Add the option of the machine, and `--output` with a default if one is given."""
    parser.add_argument(
        "--machine",
        type=folder_name("--machine"),
        metavar="NAME",
        help="keep the results in benchmarks/results/NAME, those of Table 9 too (default: the name "
        "of the processor, and Table 9 in results/table9)",
    )
    if output is not None:
        text = "folder in place of the repository"
        parser.add_argument("--output", type=Path, default=output, metavar="DIR", help=text)


def folder_name(option: str) -> Callable[[str], str]:
    """Make an argparse type for a word that can name a folder."""

    def parse(word: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", word):
            raise argparse.ArgumentTypeError(
                f"`{option}` must be letters, digits, dots, hyphens and underscores, but is "
                f"{word!r}."
            )
        return word

    return parse
