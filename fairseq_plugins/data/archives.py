"""Archives from elsewhere: what cannot be read, or would not end, is refused before unpacking."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import UNPACKING_ERRORS

LARGEST_MEMBER = 1 << 30  # bytes; the largest file of WikiText-103 has half as many
_ENCRYPTED = 0x1  # in a member's flags


def check_size(declared: int, place: str) -> None:
    """Raise DataError for a member that is declared to have more than `LARGEST_MEMBER` bytes."""
    if declared > LARGEST_MEMBER:
        raise DataError(
            f"{place} must have at most {LARGEST_MEMBER:,} bytes, but is declared to have "
            f"{declared:,}"
        )


class Zip:
    """The members of a zip, read one by one by their names.

    Raises:
        DataError: no zip, or a damaged one.
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
        """A member that is there; no more of it is read than the zip declares.

        Raises:
            DataError: naming it, where it is encrypted, larger than `LARGEST_MEMBER`, packed in an
                unknown way, or found to be damaged within the block.
        """
        member, place = self._members[name], f"{name} in {self.path}"
        if member.flag_bits & _ENCRYPTED:
            raise DataError(f"{place} is encrypted; it must be readable without a password")
        check_size(member.file_size, place)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(name) as stream:
                yield io.BufferedReader(cast(io.RawIOBase, stream))
        except NotImplementedError as error:
            raise DataError(f"{place} is packed in a way that cannot be read: {error}") from error
        except (*UNPACKING_ERRORS, zipfile.BadZipFile) as error:
            raise DataError(f"{place} is damaged: {error}") from error
