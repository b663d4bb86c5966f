"""Safe reading of downloaded zip archives: sizes are checked before unpacking."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import UNPACKING_ERRORS

LARGEST_MEMBER = 1 << 30  # bytes; twice the largest file of WikiText-103
_ENCRYPTED = 0x1  # bit of a member's flags


def check_size(declared: int, place: str) -> None:
    """Raise DataError for a member with a declared size above `LARGEST_MEMBER`."""
    if declared > LARGEST_MEMBER:
        raise DataError(
            f"{place} must have at most {LARGEST_MEMBER:,} bytes, but is declared to have "
            f"{declared:,}"
        )


class Zip:
    """A zip archive whose members are read by name.

    Raises:
        DataError: the file is no zip or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self._members = {info.filename: info for info in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise DataError(f"{path} is not a readable zip: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member, reading at most its declared size.

        Raises DataError: naming the member if it is encrypted, larger than `LARGEST_MEMBER`, of an
        unknown compression, or found to be damaged within the context.
        """
        member, place = self._members[name], f"{name} in {self.path}"
        if member.flag_bits & _ENCRYPTED:
            raise DataError(f"{place} is encrypted; it must be readable without a password")
        check_size(member.file_size, place)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(name) as stream:
                yield io.BufferedReader(cast(io.RawIOBase, stream))
        except NotImplementedError as error:
            raise DataError(f"{place} has an unsupported compression: {error}") from error
        except (*UNPACKING_ERRORS, zipfile.BadZipFile) as error:
            raise DataError(f"{place} is damaged: {error}") from error
