"""Reading checkpoints of fairseq, in which every byte is as it was written."""

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"  # as fairseq names them


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be read, with the reason."""


def read_updates(path: Path) -> int:
    """The number of updates after which a checkpoint was written; every byte of it is checked.

    Raises:
        DamagedCheckpoint: for a file that is cut off, has flipped bytes, or is no checkpoint.
    """
    try:
        return int(_read_whole(path)["optimizer_history"][-1]["num_updates"])
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(f"it cannot be read ({error})") from None


def _read_whole(path: Path) -> Any:
    """The content of a file in which every byte is as it was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken:
            raise DamagedCheckpoint(f"its part {broken} has a wrong checksum")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DamagedCheckpoint(f"it is cut off or no checkpoint ({error})") from None
    except (RuntimeError, pickle.UnpicklingError, LookupError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(f"it cannot be read ({str(error).splitlines()[0]})") from None


def require_intact(path: Path) -> None:
    """Raise ValueError, naming the file, where a checkpoint is cut off or has flipped bytes."""
    try:
        _read_whole(path)
    except DamagedCheckpoint as error:
        raise ValueError(f"{path}: {error}") from None
