"""Default folders of recipes, data, checkpoints and results.

In a checkout all of them are in the repository. An installed package contains its recipes, and the
others are in the working folder.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from fairseq_plugins.common.option_types import new_folder

PACKAGE = Path(__file__).resolve().parents[1]  # fairseq's --user-dir
_SHIPPED = PACKAGE / "configs"  # of a wheel; a checkout has them beside the package
IS_CHECKOUT = not _SHIPPED.is_dir() and (PACKAGE.parent / "configs").is_dir()
ROOT = PACKAGE.parent if IS_CHECKOUT else Path.cwd()

# Folders below the root, and the environment variables that replace them.
FOLDER_VARIABLES = {
    "data": "FAIRSEQ_PE_DATA",
    "checkpoints": "FAIRSEQ_PE_CHECKPOINTS",
    "results": "FAIRSEQ_PE_RESULTS",
}


def configs_folder(root: Path = ROOT) -> Path:
    """Return the folder of recipes, in the package or in a checkout."""
    return _SHIPPED if _SHIPPED.is_dir() else root / "configs"


def nearest_configs(root: Path) -> Path:
    """Return the recipes beside a folder of results, or this package's."""
    own = configs_folder(root)
    return own if own.is_dir() else configs_folder(PACKAGE.parent)


def root_folder(kind: str) -> Path:
    """Return the folder of all data, checkpoints or results, to be joined to the root.

    Relative if it is below the root, else absolute.
    """
    given = os.environ.get(FOLDER_VARIABLES[kind])
    return from_root(Path(given)) if given else Path(kind)


def from_root(path: Path, root: Path = ROOT) -> Path:
    """Return a path relative to the root if it is below it, as printed and recorded."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def set_folder(kind: str, folder: Path) -> None:
    """Replace a folder, in this process and its children."""
    os.environ[FOLDER_VARIABLES[kind]] = str(folder)


def add_folder_options(
    parser: argparse.ArgumentParser, kinds: Iterable[str] = FOLDER_VARIABLES
) -> None:
    """Add an option for each folder, or for some."""
    for kind in kinds:
        parser.add_argument(
            "--data-root" if kind == "data" else f"--{kind}",
            type=new_folder,
            dest=f"{kind}_folder",
            metavar="DIR",
            help=f"folder with all {kind} (default: ${FOLDER_VARIABLES[kind]}, or ./{kind})",
        )


def apply_folder_options(args: argparse.Namespace) -> None:
    """Apply the options of `add_folder_options`."""
    for kind in FOLDER_VARIABLES:
        if (folder := getattr(args, f"{kind}_folder", None)) is not None:
            set_folder(kind, folder.absolute())


def data_folder(name: str) -> Path:
    """Return a data folder by name."""
    return ROOT / root_folder("data") / name
