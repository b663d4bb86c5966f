"""Reading of checkpoints, with `weights_only=True`, checksums, and errors that name the path."""

import argparse
import errno
import functools
import hashlib
import inspect
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_plugins.common.errors import CheckpointError, checkpoint_given_by

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"  # fairseq's names
_INTERPOLATION = "${"  # OmegaConf's syntax for references and resolvers
_NUMBERS = "?bhilqBHILQefd"  # NumPy's types of booleans, integers and floats
_DEEPEST = 32  # nesting of options
# What a lack of memory, a disk or a file server raises, also for files that are intact.
_OF_THE_MACHINE = (errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
_FOREIGN = re.compile(r"(?:GLOBAL|global|class|type:?) [`'\"]?([\w.]+)")


class DamagedCheckpoint(CheckpointError):
    """An error about a file that cannot be read as a checkpoint, with the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def _readable_types() -> list[Any]:
    """List the types that a checkpoint may hold beside tensors and plain data.

    Options of a model without a dataclass, as fairseq's roberta, are a Namespace; meters of
    ``--eval-bleu`` have NumPy's arrays and numbers.
    """
    # NumPy 2 renamed the module, but reads files with the old name too.
    modules = ("numpy.core.multiarray", "numpy._core.multiarray")
    multiarray = import_module(modules[np.__version__ >= "2"])
    functions = [multiarray.scalar, multiarray._reconstruct]
    return [
        argparse.Namespace,
        np.ndarray,
        np.dtype,
        *{type(np.dtype(code)) for code in _NUMBERS},
        *((one, f"{module}.{one.__name__}") for one in functions for module in modules),
    ]


READABLE = _readable_types()


def allow_readable() -> None:
    """Allow the types of `READABLE` in checkpoints, for the life of the process."""
    torch.serialization.add_safe_globals(READABLE)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a fairseq checkpoint as plain data on the CPU, its weights mapped from the file.

    Raises:
        DamagedCheckpoint: the file is truncated, has flipped bytes, holds code, is not a
            checkpoint, or has options that refer to other options or the environment.
        CheckpointError: the file does not exist.
    """
    with _reading(path):
        # Checkpoints from before 2020, as fairseq's RoBERTa, are not zip archives with checksums.
        mmap = zipfile.is_zipfile(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if not isinstance(state, dict) or not isinstance(state.get("model"), Mapping):
            raise DamagedCheckpoint(path, "it is not a fairseq checkpoint")
        for section in ("cfg", "args"):
            _require_plain(path, section, state.get(section))
        return state


def weights_checksum(state: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a model's weights, without those of its output head.

    Unlike a file's checksum, it does not depend on versions. A model that is published without an
    output head gets a random one, whose last bits differ between kinds of processors.

    Args:
        state: the weights by name, on the CPU.
    """
    checksum = hashlib.sha256()
    for name in sorted(state):
        if ".lm_head." not in name:
            weight = state[name].contiguous()
            checksum.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            checksum.update(weight.reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def check_checkpoints_on_loading() -> None:
    """Make fairseq's own commands check each checkpoint by `read_checkpoint`.

    fairseq-generate and its like hand the options of a checkpoint to OmegaConf, which would put
    variables of the environment in place of ``${oc.env:NAME}``, and then into logs and errors.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(load)
    def checked(path: str, *args: Any, **options: Any) -> Any:
        # `path` of fairseq-generate and its like, `restore_file` of a training.
        with checkpoint_given_by("`path` or `restore_file`"):
            read_checkpoint(Path(PathManager.get_local_path(path)))
        return load(path, *args, **options)

    checkpoint_utils.load_checkpoint_to_cpu = checked


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read tensors by name from a file written by torch.save, on the CPU.

    Raises:
        DamagedCheckpoint: the file is truncated, has flipped bytes, or holds anything else.
        CheckpointError: the file does not exist.
    """
    with _reading(path):
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        is_plain = isinstance(tensors, dict) and all(
            isinstance(name, str) and isinstance(value, torch.Tensor)
            for name, value in tensors.items()
        )
        if not is_plain:
            raise DamagedCheckpoint(path, "it must hold tensors by name alone")
        return dict(tensors)


def read_updates(path: Path) -> int:
    """Read a checkpoint's number of updates; checksums are verified.

    Raises CheckpointError: the file is missing, damaged, or has no number of updates.
    """
    try:
        updates = read_checkpoint(path)["optimizer_history"][-1]["num_updates"]
    except (LookupError, TypeError) as error:
        raise DamagedCheckpoint(path, f"it has no number of updates ({error})") from None
    if not isinstance(updates, int) or updates < 0:
        raise DamagedCheckpoint(path, f"its number of updates is {updates!r}")
    return updates


def read_upgraded(
    path: Path, check: Callable[[dict[str, Any]], None] = lambda checkpoint: None, **options: Any
) -> dict[str, Any]:
    """Read a checkpoint in the form from which fairseq builds models, with options replaced.

    check: called with the result of `read_checkpoint`, before fairseq's conversion. options: new
    values of training options. Raises as `read_checkpoint` does.
    """
    from fairseq import checkpoint_utils

    check(read_checkpoint(path))
    with _reading(path):
        load = inspect.unwrap(checkpoint_utils.load_checkpoint_to_cpu)  # checked already
        state: dict[str, Any] = load(str(path), options)
        return state


def model_options(path: Path, checkpoint: Mapping[str, Any]) -> Any:
    """Return a checkpoint's model options, a mapping or a Namespace; None if missing.

    Raises CheckpointError: the options have another type.
    """
    config = checkpoint.get("cfg")
    if not isinstance(config, Mapping | None):
        raise CheckpointError(f"{path}: its options must be a mapping, but are {config!r:.40}")
    options = (config or {}).get("model") or checkpoint.get("args")
    if not isinstance(options, Mapping | argparse.Namespace | None):
        raise CheckpointError(
            f"{path}: the options of its model must be a mapping, but are {options!r:.40}"
        )
    return options


def as_mapping(options: Any) -> Any:
    """Return a Namespace, which holds fairseq's options without a dataclass, as a mapping."""
    return vars(options) if isinstance(options, argparse.Namespace) else options


def option_of(section: Any, name: str) -> Any:
    """Return an option of a mapping, a dataclass or a Namespace; None if missing."""
    get = getattr(section, "get", None)
    return get(name) if get else getattr(section, name, None)


def _require_plain(path: Path, name: str, value: Any, depth: int = 0) -> None:
    """Reject options that OmegaConf would resolve; fairseq never writes such options."""
    if depth > _DEEPEST:
        raise DamagedCheckpoint(path, f"its options are nested more than {_DEEPEST} deep")
    value = as_mapping(value)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _require_plain(path, name, key, depth + 1)
            _require_plain(path, f"{name}.{key}", inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_plain(path, name, inner, depth + 1)
    elif isinstance(value, str) and _INTERPOLATION in value:
        reason = f"its option {name} must be plain text, but is the reference {value!r}"
        raise DamagedCheckpoint(path, reason)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Verify a file's checksums, and name the file in errors of the block that reads it.

    Raises OSError if the machine cannot read the file, which may be intact.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    is_intact = False
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()
            if broken:
                raise DamagedCheckpoint(path, f"its part {broken} has a wrong checksum")
            is_intact = True
        # Permanently: PyTorch's context manager would also remove what fairseq allowed before.
        allow_readable()
        yield
    except DamagedCheckpoint:
        raise
    except Exception as error:  # unpickling damaged data raises nearly anything
        if isinstance(error, OSError) and error.filename is not None:
            raise
        if number := _machine_error(error, is_intact=is_intact):
            raise OSError(number, os.strerror(number), str(path)) from error
        raise DamagedCheckpoint(path, _reason(error)) from None


def _machine_error(error: Exception, *, is_intact: bool) -> int | None:
    """Return the number of an error of the machine, None if the file itself may be at fault.

    is_intact: whether its checksums are right; a damaged file may ask for any amount of memory.
    """
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        return error.errno
    # PyTorch raises RuntimeErrors, of its allocator or with the system's text.
    words = ("DefaultCPUAllocator", os.strerror(errno.ENOMEM))
    is_short = isinstance(error, MemoryError) or any(word in str(error) for word in words)
    return errno.ENOMEM if is_intact and is_short else None


def _reason(error: Exception) -> str:
    """Explain why a file could not be read, without PyTorch's advice to load it unsafely."""
    text = str(error)
    if "weights_only" not in text:
        line = (text or type(error).__name__).splitlines()[0]
        return f"it is truncated or not a checkpoint ({line})"
    if foreign := _FOREIGN.search(text):
        return f"it is not a checkpoint: it holds code ({foreign[1]}), which is not loaded"
    return "it is truncated or not a checkpoint (its pickle cannot be read)"
