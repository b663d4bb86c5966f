"""Checkpoints are read here alone: as plain data, every byte checked, refused with their name."""

import argparse
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.common.errors import CheckpointError

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"  # as fairseq names them


class DamagedCheckpoint(CheckpointError):
    """A file that cannot be read as a checkpoint, with the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of fairseq's as plain data on the CPU, its weights mapped from the file.

    Raises:
        DamagedCheckpoint: for a file that is cut off, has flipped bytes, or is no checkpoint.
        CheckpointError: there is no such file.
    """
    with _reading(path):
        # Checkpoints from before 2020, as fairseq's own RoBERTa, are no archives with checksums.
        mmap = zipfile.is_zipfile(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        return _require_model(path, state)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by name from a file that torch.save has written, on the CPU.

    Raises:
        DamagedCheckpoint: for a file that is cut off, has flipped bytes, or holds anything else.
        CheckpointError: there is no such file.
    """
    with _reading(path):
        found = torch.load(path, map_location="cpu", weights_only=True)
        is_plain = isinstance(found, dict) and all(
            isinstance(name, str) and isinstance(value, torch.Tensor)
            for name, value in found.items()
        )
        if not is_plain:
            raise DamagedCheckpoint(path, "it must hold tensors by name, and nothing else")
        return dict(found)


def read_upgraded(path: Path, **options: Any) -> dict[str, Any]:
    """A checkpoint as fairseq builds models from it, with options of its training replaced.

    Raises:
        DamagedCheckpoint, CheckpointError: as `read_checkpoint` does.
    """
    from fairseq import checkpoint_utils

    with _reading(path):
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), options)
        return _require_model(path, state)


def _require_model(path: Path, state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or not isinstance(state.get("model"), Mapping):
        raise DamagedCheckpoint(path, "it is no checkpoint of fairseq's")
    return state


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Check every byte of a file, and name it in what goes wrong in the block that reads it."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()
            if broken:
                raise DamagedCheckpoint(path, f"its part {broken} has a wrong checksum")
        # A model without a dataclass, as fairseq's roberta, has its options in a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]):
            yield
    except (DamagedCheckpoint, OSError):
        raise
    except pickle.UnpicklingError as error:
        # PyTorch's own text advises to load such a file in a way that runs what it holds.
        reason = "it is cut off or no checkpoint, or holds code, and is not read"
        raise DamagedCheckpoint(path, reason) from error
    except Exception as error:  # unpickling what is no pickle may raise nearly anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DamagedCheckpoint(path, f"it is cut off or no checkpoint ({reason})") from error
