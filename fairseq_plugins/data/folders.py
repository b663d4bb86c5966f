"""Atomic creation of data folders, with a data.json that records their origin.

A folder is built next to its target and then renamed. Results record their data by data.json, and a
second call with the same request does nothing.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.locks import exclusive_lock
from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.common.provenance import SPLITS as SPLITS


def report(message: str) -> None:
    """Print a progress message at once."""
    print(f"prepare: {message}", flush=True)


@dataclass(frozen=True)
class Folder:
    """A data folder to build."""

    path: Path
    request: Mapping[str, Any]  # source and settings, which determine its content
    files: tuple[str, ...] = DATA_FILES  # names of those that it must hold
    record: str = "data.json"  # name of the record file
    # sha256 of each split's source file, or of each file of the origin, for requests without them.
    sums: Mapping[str, str] = field(default_factory=dict)
    force: bool = False  # whether other data may be replaced

    def is_done(self) -> bool:
        """Return whether the folder was made by the same request and is complete."""
        return not self._changes() and all((self.path / name).is_file() for name in self.files)

    def _changes(self, *, ignored: str = "") -> list[str]:
        """List the differences to the request of the existing data, except in one key."""
        record = read_object(self.path / self.record) or {}
        earlier = record.get("request")
        if not isinstance(earlier, dict):
            return [f"its {self.record} is damaged"]
        changes = []
        for name in {**earlier, **self.request}:
            old, new = earlier.get(name), self.request.get(name)
            if name == ignored:
                continue
            if old != new and isinstance(old or new, dict):
                old, new = old or {}, new or {}
                parts = [part for part in {**old, **new} if old.get(part) != new.get(part)]
                changes.append(f"other {name}: {', '.join(parts)}")
            elif old != new:
                before, now = ("unset" if one is None else f"{one!s:.40}" for one in (old, new))
                changes.append(f"{name} is {before}, not {now}")
        known = {name: split.get("sha256") for name, split in (record.get("splits") or {}).items()}
        if isinstance(archives := (record.get("origin") or {}).get("sha256"), dict):
            known |= archives
        other = [name for name, digest in self.sums.items() if known.get(name) != digest]
        return [*changes, *([f"other files: {', '.join(other)}"] if other else [])]

    def report_done(self) -> None:
        """Print that the folder exists, and from which folder it was made where one was given."""
        origin = (read_object(self.path / self.record) or {}).get("origin") or {}
        source = f", made --from {origin['from']}" if "from" in origin else ""
        report(f"{self.path} is already there{source}; delete it to prepare it again")

    def refuse_other(self) -> None:
        """Raise DataError if the path holds something not made here, or other data.

        A folder that an earlier version prepared from the same text may be replaced.
        """
        occupied = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if occupied and not (self.path / self.record).is_file():
            raise DataError(
                f"--output {self.path} exists and was not made by this command; move it away"
            )
        if occupied and not self.force and (changes := self._changes(ignored="preparation")):
            raise DataError(
                f"--output {self.path} has other data ({'; '.join(changes)}); give another "
                "--output, or --force to replace it"
            )

    def finish(
        self, built: Path, origin: Mapping[str, Any], about: Mapping[str, Any], summary: str
    ) -> None:
        """Write the record into a built folder, move it to its target, and print a summary.

        Args:
            built: the built folder.
            origin: source of the data, for the record.
            about: further entries of the record.
            summary: text to print.
        """
        record = {"request": self.request, "origin": origin, **about}
        (built / self.record).write_text(json.dumps(record, indent=1) + "\n")
        replace_folder(built, self.path)
        report(f"{self.path}: {summary}")


@contextmanager
def build_folder(folder: Folder, resume: Mapping[str, Any] | None = None) -> Iterator[Path | None]:
    """Yield a staging folder, as `staging_folder` does; None if the folder is already there.

    Raises DataError: the path holds something not made here, or other data.
    """
    folder.refuse_other()
    with staging_folder(folder.path, resume) as work:
        folder.refuse_other()  # another process may have made it meanwhile
        if folder.is_done():
            folder.report_done()
            yield None
        else:
            yield work


@contextmanager
def staging_folder(output: Path, resume: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Yield a folder next to `output` to build in; one process at a time per output.

    It starts empty and is removed at the end. With `resume`, which identifies the work, an
    interrupted build of the same work is continued. It is then kept on interruption, and removed on
    success or if the input is rejected.

    A symbolic link is followed, so that the data is where it points.
    """
    real = output.resolve()
    work = real.parent / f".{real.name}.building"
    with exclusive_lock(real.parent / f".{real.name}.lock", str(output), wait=report):
        if resume is None or read_object(work / "building.json") != resume:
            shutil.rmtree(work, ignore_errors=True)  # left by a killed process
            work.mkdir()
            (work / "building.json").write_text(json.dumps(resume))
        keep = False
        try:
            yield work
        except (DataError, OptionError):
            raise
        except BaseException as error:
            keep = resume is not None
            if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk
                raise OSError(error.errno, error.strerror, str(output)) from error
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


def replace_folder(built: Path, output: Path) -> None:
    """Move a complete folder to its target, or to where that links, replacing an older one."""
    output = output.resolve()
    old = built.parent / "replaced"
    if output.exists():
        output.rename(old)
    built.rename(output)
    shutil.rmtree(old, ignore_errors=True)
