"""Atomic writing of files, reading of plain or packed ones, and short names."""

import errno
import gzip
import itertools
import json
import lzma
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from fairseq_plugins.common.errors import DataError

_OPENERS: dict[str, Any] = {"": open, ".xz": lzma.open, ".gz": gzip.open}
PACKED = "plain, as .xz or as .gz"  # formats of find_packed and open_packed, for messages
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# Errors of reading a damaged .xz or .gz.
UNPACKING_ERRORS = (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error)


@contextmanager
def writing(*paths: Path) -> Iterator[tuple[IO[bytes], ...]]:
    """Open files that all replace their paths when the block ends, and none if it fails.

    Each is written beside its path (missing folders are made), synced and renamed, so that readers
    find the old file or the new one, even after a power cut. Devices and pipes are written
    directly.
    """
    parts: list[tuple[Path, Path]] = []
    try:
        with ExitStack() as stack:
            files = []
            for path in paths:
                if path.exists() and not path.is_file():
                    files.append(stack.enter_context(path.open("wb")))
                    continue
                if path.parent.exists() and not path.parent.is_dir():
                    number = errno.ENOTDIR
                    raise OSError(number, os.strerror(number), str(path.parent))
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
                files.append(stack.enter_context(part.open("xb")))
                parts.append((part, path))
            yield tuple(files)
            for file in files:
                file.flush()
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    os.fsync(file.fileno())
        for part, path in parts:
            part.replace(path)
    except BaseException as error:
        for part, _ in parts:
            part.unlink(missing_ok=True)
        if (full := _full_disk(error)) is not None:
            names = " and ".join(map(str, paths))
            raise OSError(full, os.strerror(full), names) from error
        raise


def _full_disk(error: BaseException | None) -> int | None:
    """Return the number of a full disk's error, maybe behind PyTorch's RuntimeError."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return error.errno if error.filename is None else None
        error = error.__cause__ or error.__context__
    return None


def with_ending(stem: Path, ending: str) -> Path:
    """Append an ending, as ".png", to a path whose name may have dots of its own."""
    return stem.with_name(f"{stem.name}{ending}")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with writing(path) as (file,):
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 atomically, without changing line ends."""
    write_bytes(path, text.encode())


def write_json(
    path: Path, value: Any, *, indent: int | None = 1, ensure_ascii: bool = True
) -> None:
    """Write JSON and a line feed atomically (ValueError: a number is not finite)."""
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)
    write_text(path, text + "\n")


def write_statistics(path: Path, value: Any) -> None:
    """Write JSON with ten significant digits, which are the same on every processor."""
    digits = json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.10g}"))
    write_json(path, digits)


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if the file is missing, damaged or something else.

    Raises OSError if it cannot be read now, which says nothing about its content.
    """
    try:
        found = json.loads(path.read_text())
    except (*_ABSENT, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def require_object(path: Path, kind: type[ValueError] = DataError) -> dict[str, Any]:
    """Read a JSON object; an error of this kind, which names the file, if it holds anything else.

    Raises OSError: the file cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of JSON and of UTF-8
        raise kind(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise kind(f"{path} is damaged: it must be an object")
    return found


def find_packed(folder: Path, *names: str) -> Path | None:
    """Find the first existing file of a folder, plain or packed."""
    for name, ending in itertools.product(names, _OPENERS):
        path = folder / (name + ending)
        if path.is_file():
            return path
    return None


def open_packed(path: Path) -> IO[bytes]:
    """Open a file, unpacked by its suffix; reading may raise `UNPACKING_ERRORS`."""
    return cast(IO[bytes], _OPENERS.get(path.suffix, open)(path, "rb"))


def decoded(lines: Iterable[bytes], name: object) -> Iterator[str]:
    """Yield the lines of a file of UTF-8, without its byte-order mark if it has one.

    Raises DataError: a line is not UTF-8; the message has its number and the file's name.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: is not UTF-8: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked by its suffix.

    Raises DataError: the file proves to be damaged within the block.
    """
    try:
        with open_packed(path) as stream:
            yield stream
    except UNPACKING_ERRORS as error:
        raise DataError(f"{path} is damaged: {error}") from error


def read_bytes(path: Path) -> bytes:
    """Read a whole file, unpacked as `reading` does."""
    with reading(path) as stream:
        return stream.read()


def short_stem(path: Path) -> str:
    """Return the start of a file's name, of at most 20 letters, digits and underscores.

    A name with other letters ends in its checksum: all names in another script would be the same.
    """
    stem = path.name.partition(".")[0]
    short = re.sub(r"[^A-Za-z0-9]+", "_", stem)
    return short[:20] if stem.isascii() else f"{short[:11]}_{zlib.crc32(stem.encode()):08x}"
