"""Places of recipes, data, checkpoints and results, unless a command names others.

In a checkout all of it is in the repository. An installed package has its recipes inside itself,
and the rest is in the working folder.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]  # fairseq's --user-dir
_SHIPPED = PACKAGE / "configs"  # in a wheel; a checkout has them beside the package
IS_CHECKOUT = not _SHIPPED.is_dir() and (PACKAGE.parent / "configs").is_dir()
ROOT = PACKAGE.parent if IS_CHECKOUT else Path.cwd()

# What is below the root, and the variables of the environment that put it elsewhere.
PLACES = {
    "data": "FAIRSEQ_PE_DATA",
    "checkpoints": "FAIRSEQ_PE_CHECKPOINTS",
    "results": "FAIRSEQ_PE_RESULTS",
}


def configs_folder(root: Path = ROOT) -> Path:
    """The recipes of fairseq-hydra-train: those in the package, or a checkout's."""
    return _SHIPPED if _SHIPPED.is_dir() else root / "configs"


def nearest_configs(root: Path) -> Path:
    """The recipes of a folder of results, or this package's where it has none of its own."""
    own = configs_folder(root)
    return own if own.is_dir() else configs_folder(PACKAGE.parent)


def place(kind: str) -> Path:
    """The folder of all data, checkpoints or results, to be joined to the root.

    Relative, also where the environment names a folder below the root; else absolute.
    """
    told = os.environ.get(PLACES[kind])
    if not told:
        return Path(kind)
    return from_root(Path(told))


def from_root(path: Path, root: Path = ROOT) -> Path:
    """A path as it is printed and recorded: relative to the root where it is below it."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def put(kind: str, folder: Path) -> None:
    """Have a place elsewhere, in this process and all that it starts."""
    os.environ[PLACES[kind]] = str(folder)


def add_places(parser: argparse.ArgumentParser, kinds: Iterable[str] = PLACES) -> None:
    """An option for each place, or for some."""
    for kind in kinds:
        parser.add_argument(
            "--data-root" if kind == "data" else f"--{kind}",
            type=Path,
            dest=f"place_{kind}",
            metavar="DIR",
            help=f"folder of all {kind} (default: {PLACES[kind]} in the environment, or ./{kind})",
        )


def put_places(args: argparse.Namespace) -> None:
    """Do as the options of `add_places` say."""
    for kind in PLACES:
        if (folder := getattr(args, f"place_{kind}", None)) is not None:
            put(kind, folder.absolute())


def data_folder(name: str) -> Path:
    """The folder of that name among all data."""
    return ROOT / place("data") / name
