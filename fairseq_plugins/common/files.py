"""Files that are written whole or not at all, and files that are read plain or packed."""

import gzip
import itertools
import json
import lzma
import os
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from fairseq_plugins.common.errors import DataError

_OPENERS: dict[str, Any] = {"": open, ".xz": lzma.open, ".gz": gzip.open}
PACKED = "plain, as .xz or as .gz"  # what find_packed and open_packed take, in words
# What reading a damaged .xz or .gz raises.
UNPACKING_ERRORS = (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error)


@contextmanager
def writing(*paths: Path) -> Iterator[tuple[IO[bytes], ...]]:
    """Files that take their places together when the block ends, and none of them if it fails.

    Each is written beside its place in a folder that is made if need be, brought to the disk and
    renamed: whoever reads, even after a power cut, finds the old file or the new one. What is no
    file, as /dev/stdout and a pipe, is written to as it is.
    """
    parts: list[tuple[Path, Path]] = []
    try:
        with ExitStack() as stack:
            files = []
            for path in paths:
                if path.exists() and not path.is_file():
                    files.append(stack.enter_context(path.open("wb")))
                    continue
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
    except BaseException:
        for part, _ in parts:
            part.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as `writing` does."""
    with writing(path) as (file,):
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 as `writing` does; line ends stay as they are."""
    write_bytes(path, text.encode())


def write_json(
    path: Path, value: Any, *, indent: int | None = 1, ensure_ascii: bool = True
) -> None:
    """Write JSON and a line feed as `writing` does.

    Raises:
        ValueError: for a number that JSON does not have, such as a loss that is not finite.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)
    write_text(path, text + "\n")


def find_packed(folder: Path, *names: str) -> Path | None:
    """The first of these files that a folder holds, plain or packed."""
    for name, ending in itertools.product(names, _OPENERS):
        path = folder / (name + ending)
        if path.is_file():
            return path
    return None


def open_packed(path: Path) -> IO[bytes]:
    """What a file holds, unpacked as its ending says; reading may raise `UNPACKING_ERRORS`."""
    return cast(IO[bytes], _OPENERS.get(path.suffix, open)(path, "rb"))


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """What a file holds, unpacked as its ending says.

    Raises:
        DataError: naming the file, where it is found to be damaged within the block.
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


def missing_packed(folder: Path, names: Iterable[str]) -> list[str]:
    """The files that a folder holds neither plain nor packed."""
    return [name for name in names if find_packed(folder, name) is None]
