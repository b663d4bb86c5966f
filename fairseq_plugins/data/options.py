"""Shared options of the data commands, and checks of their values."""

import argparse
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import PACKED, find_packed
from fairseq_plugins.common.option_types import parse_seed
from fairseq_plugins.common.root import data_folder

Key = TypeVar("Key", bound=Hashable)
FEWEST_MERGES = 16  # minimum for a byte-pair encoding of words


def call(function: Callable[..., None], args: argparse.Namespace, **own: Any) -> None:
    """Call a function with the options that its parameters name, and with `own` arguments."""
    names = [name for name in inspect.signature(function).parameters if name in args]
    function(**{**{name: getattr(args, name) for name in names}, **own})


def add_command(
    commands: Any, name: str, script: str, summary: str, description: str = "Make {}."
) -> argparse.ArgumentParser:
    """Add the subcommand of scripts/<script>.sh; `summary` names the data that it makes."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, prog=program(script), help=summary, description=description.format(summary)
    )
    return parser


def program(script: str) -> str:
    """Return the name of the data command of scripts/<script>.sh, for its help."""
    return f"fairseq-pe {PROGRAM_COMMANDS[script]}"


def add_folder(parser: Any, option: str, text: str, **more: Any) -> None:
    """Add an option that takes a folder."""
    parser.add_argument(option, type=Path, metavar="DIR", help=text, **more)


def add_tokenizer(parser: Any, text: str, default: str | None = None) -> None:
    """Add --tokenizer (alias --bpe, stored as `bpe`), a folder for `load_tokenizer`.

    It is by default data/<default>; required without one.
    """
    text = f"folder of {text}: GPT-2's BPE (encoder.json, vocab.bpe, dict.txt) or BERT's "
    text += "WordPiece (tokenizer.json or vocab.txt)"
    more: dict[str, Any] = {"required": True}
    if default:
        text += f" (default: data/{default})"
        more = {"default": data_folder(default)}
    parser.add_argument(
        "--tokenizer", "--bpe", dest="bpe", type=Path, metavar="DIR", help=text, **more
    )


def add_source(parser: Any, text: str, **more: Any) -> None:
    """Add --from, stored as `source`."""
    add_folder(parser, "--from", text, dest="source", **more)


def add_output(parser: Any, name: str, text: str = "folder to make") -> None:
    """Add --output, by default data/<name>."""
    text = f"{text} (default: data/{name})"
    add_folder(parser, "--output", text, default=data_folder(name))


def add_force(parser: Any) -> None:
    """Add --force."""
    text = "replace data of other text or settings in --output"
    parser.add_argument("--force", action="store_true", help=text)


def add_number(parser: Any, option: str, default: int | float, text: str) -> None:
    """Add an option that takes a number of the default's type."""
    text = f"{text} (default: {default})"
    parser.add_argument(option, type=type(default), default=default, metavar="N", help=text)


def add_workers(parser: Any, text: str, default: int = 2) -> None:
    """Add --workers."""
    add_number(parser, "--workers", default, text)


def add_seed(parser: Any, noun: str) -> None:
    """Add --seed of generated data; `noun` names the data in the help."""
    parser.add_argument(
        "--seed", type=parse_seed, default=1, help=f"random seed of the {noun} (default: 1)"
    )


def add_counts(parser: Any, unit: str, defaults: Mapping[str, int], text: str) -> None:
    """Add --<split>-<unit> for every split; `text` may contain {split}."""
    for split, count in defaults.items():
        add_number(parser, f"--{split}-{unit}", count, text.format(split=split))


def counts_from(args: argparse.Namespace, unit: str, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers by split, from options of `add_counts`."""
    return {split: getattr(args, f"{split}_{unit}") for split in defaults}


def check_counts(unit: str, counts: Mapping[str, int]) -> None:
    """Raise OptionError for an empty split."""
    check_at_least(1, **{f"{split}_{unit}": count for split, count in counts.items()})


LARGEST = 2**31 - 1  # bound of numeric options


def check_at_least(
    least: int | float, *, most: int | float = LARGEST, **options: int | float | None
) -> None:
    """Raise OptionError naming an option outside ``least`` to ``most``; None is unset."""
    for name, value in options.items():
        if value is not None and not least <= value <= most:
            bound = f"at most {most:,}" if value > most else f"at least {least}"
            raise OptionError(f"--{name.replace('_', '-')} must be {bound}, but is {value}")


def check_folder(source: Path, option: str = "--from") -> None:
    """Raise DataError if an option's folder does not exist."""
    if not source.is_dir():
        raise DataError(f"{option} must be an existing folder, but is {source}")


def find_sources(source: Path, names: Mapping[Key, Sequence[str]]) -> dict[Key, Path]:
    """Find a file of --from for each key, plain or packed, by several names.

    Raises DataError that lists the missing files.
    """
    check_folder(source)
    found, absent = {}, []
    for key, choices in names.items():
        if path := find_packed(source, *choices):
            found[key] = path
        else:
            absent.append(" or ".join(choices))
    if absent:
        raise DataError(f"--from {source} does not hold {', '.join(absent)} ({PACKED})")
    return found


def check_file(path: Path, option: str) -> None:
    """Raise DataError if an option's file does not exist."""
    if not path.is_file():
        raise DataError(f"{option} must be an existing file, but is {path}")
