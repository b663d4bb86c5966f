"""Checks of binarised text, the two files that fairseq-preprocess writes for a split.

fairseq maps both files into memory without checks: a truncated file, or one of another format, ends
a training with an unrelated traceback, or hangs it.

    .idx    magic, version (u64), type of the tokens (u8), sentences N (u64),
            their lengths (N x i32), their offsets in .bin (N x i64)
    .bin    the tokens of all sentences
"""

import struct
from pathlib import Path

import numpy as np

from fairseq_plugins.common.errors import DataError

_MAGIC = b"MMIDIDX\x00\x00"
_OTHERS = (b"TNTIDX", b"HUFFIDX")  # magic numbers of fairseq's other formats
_HEADER = struct.Struct("<QBQ")
_VERSION = 1
# Token types by their code in the file, without floats.
_TYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
    9: np.uint32,
    10: np.uint64,
}
_CHUNK = 1 << 22  # tokens checked at once


def check_split(prefix: Path, symbols: int | None = None) -> None:
    """Check that the files of a split exist and are complete, undamaged and of the right format.

    prefix: the path of both files without .idx and .bin. symbols: size of the dictionary; None if
    unknown. Raises DataError: a file fails a check; the message begins with its path.
    """
    index, tokens = (prefix.with_name(f"{prefix.name}.{end}") for end in ("idx", "bin"))
    for path in (index, tokens):
        if not path.is_file():
            raise DataError(f"{path} is missing")
    kind, lengths = _read_index(index)
    has, wants = tokens.stat().st_size, int(lengths.sum()) * kind.itemsize
    if has != wants:
        raise DataError(f"{tokens} must have {wants:,} bytes by {index.name}, but has {has:,}")
    if symbols is not None and wants:
        _check_tokens(tokens, kind, symbols)


def is_mapped(index: Path) -> bool:
    """Return whether a .idx is of the format of `check_split`, not of an older one."""
    with index.open("rb") as file:
        return not file.read(len(_MAGIC)).startswith(_OTHERS)


def _read_index(path: Path) -> tuple[np.dtype, np.ndarray]:
    """Read the type of the tokens and the lengths of the sentences (N,)."""
    begin = len(_MAGIC) + _HEADER.size
    with path.open("rb") as file:
        head = file.read(begin)
    if len(head) < begin or not head.startswith(_MAGIC):
        raise DataError(f"{path} is not an index of fairseq-preprocess, or is truncated")
    version, code, count = _HEADER.unpack(head[len(_MAGIC) :])
    if version != _VERSION or code not in _TYPES:
        raise DataError(f"{path} has version {version} and type {code}, which are not supported")
    size = path.stat().st_size
    if size != begin + 12 * count:
        raise DataError(f"{path} must have {begin + 12 * count:,} bytes, but has {size:,}")
    kind = np.dtype(_TYPES[code])
    lengths = np.fromfile(path, "<i4", count, offset=begin).astype(np.int64)
    offsets = np.fromfile(path, "<i8", count, offset=begin + 4 * count)
    if count and lengths.min() < 0:
        raise DataError(f"{path} is damaged: a sentence has {lengths.min()} tokens")
    ends = np.cumsum(lengths) * kind.itemsize
    if count and (offsets[0] != 0 or (offsets[1:] != ends[:-1]).any()):
        raise DataError(f"{path} is damaged: sentences are not contiguous")
    return kind, lengths


def _check_tokens(path: Path, kind: np.dtype, symbols: int) -> None:
    tokens = np.memmap(path, kind, "r")
    for start in range(0, len(tokens), _CHUNK):
        part = tokens[start : start + _CHUNK]
        if part.min() < 0 or part.max() >= symbols:
            raise DataError(
                f"{path} must have tokens from 0 to {symbols - 1}, by its dictionary, but "
                f"has {part.max() if part.min() >= 0 else part.min()}"
            )
