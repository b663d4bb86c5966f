"""Data folders: whole or not there, with a data.json that says what they were made from.

A folder is built beside its place and renamed into it. By its data.json a result can record its
data, and a second call can see that there is nothing to do.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.locks import exclusive
from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.common.provenance import SPLITS as SPLITS


def report(message: str) -> None:
    """Say at once how far the preparation is."""
    print(f"prepare: {message}", flush=True)


@dataclass(frozen=True)
class Folder:
    """A data folder to make.

    request: what it is made from and how; another request makes another folder.
    files: what it must hold beside its record.
    record: the file that says what it was made from.
    """

    path: Path
    request: Mapping[str, Any]
    files: tuple[str, ...] = DATA_FILES
    record: str = "data.json"

    def is_done(self) -> bool:
        """Whether it was made by the same request and nothing was removed since."""
        try:
            made = json.loads((self.path / self.record).read_text())
        except (OSError, json.JSONDecodeError):
            return False
        return made.get("request") == self.request and all(
            (self.path / name).is_file() for name in self.files
        )

    def report_done(self) -> None:
        """Say that there is nothing to do."""
        report(f"{self.path} is already there; remove it to make it anew")

    def refuse_foreign(self) -> None:
        """Raise DataError where the path holds something that was not made here."""
        occupied = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if occupied and not (self.path / self.record).is_file():
            raise DataError(
                f"--output {self.path} exists and was not made by this command; move it away"
            )

    def finish(
        self, built: Path, origin: Mapping[str, Any], about: Mapping[str, Any], summary: str
    ) -> None:
        """Write the record into what was built, put it in its place, and say so.

        origin: where the data is from. about: what else the record says.
        """
        facts = {"request": self.request, "origin": origin, **about}
        (built / self.record).write_text(json.dumps(facts, indent=1) + "\n")
        replace_folder(built, self.path)
        report(f"{self.path}: {summary}")


@contextmanager
def build_folders(
    *folders: Folder, resume: Mapping[str, Any] | None = None
) -> Iterator[tuple[Path, list[Folder]]]:
    """Yields a folder to build in, as `staging_folder` does, and the folders that are not made yet.

    Of the others it is said that they are.

    Raises:
        DataError: a path holds something else.
    """
    for folder in folders:
        folder.refuse_foreign()
    with staging_folder(folders[0].path, resume) as work:
        wanted = [folder for folder in folders if not folder.is_done()]
        for folder in folders:
            if folder not in wanted:
                folder.report_done()
        yield work, wanted


@contextmanager
def staging_folder(output: Path, resume: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A folder beside `output` to build in; one process at a time per output.

    It begins empty and is removed at the end. With `resume`, which says what is built from what,
    a folder that was left by the same is taken over, and one is left where the work is cut off:
    it is removed when the work is done or its input refused.
    """
    work = output.parent / f".{output.name}.building"
    with exclusive(output.parent / f".{output.name}.lock", str(output), wait=report):
        if resume is None or not _same_json(work / "building.json", resume):
            shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
            work.mkdir()
            (work / "building.json").write_text(json.dumps(resume))
        keep = False
        try:
            yield work
        except (DataError, OptionError):
            raise
        except BaseException:
            keep = resume is not None
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


def _same_json(path: Path, value: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(path.read_text()) == value)
    except (OSError, json.JSONDecodeError):
        return False


def replace_folder(built: Path, output: Path) -> None:
    """Put a complete folder in its place, in which an older one may stand."""
    old = built.parent / "replaced"
    if output.exists():
        output.rename(old)
    built.rename(output)
    shutil.rmtree(old, ignore_errors=True)
