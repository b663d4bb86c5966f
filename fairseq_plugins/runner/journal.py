"""The journal of a run: configuration, data, time spent and state, in its run.json."""

import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from fairseq_plugins.common.files import read_object, write_json
from fairseq_plugins.runner.run_options import Retention

JOURNAL = "run.json"  # in a run's folder
_OF_A_STUDY = {"name", "overrides", "data", "scale"}
JOURNAL_SECONDS = 5.0  # most time that is not counted when a run is killed


def written(path: Path) -> float:
    """Return when a file was written, in seconds since 1970; 0 if it is missing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@dataclass
class Journal:
    """A run's run.json, kept over all the processes that work on the run."""

    folder: Path
    config: dict[str, Any]  # as recorded
    data: dict[str, Any]  # its description
    study: dict[str, Any] | None = None  # from `Run.located_study`
    # Of each training by name, in order; 0 if its epochs are limited.
    updates: dict[str, int] = field(default_factory=dict)
    train_seconds: float = 0.0  # of training alone
    wall_seconds: float = 0.0  # of all commands
    finished: bool = False
    failed: str = ""  # reason of a failure
    log: str = ""  # of the command that failed, relative to the folder
    useless: bool = False  # whether it failed because its trained model cannot be measured
    forced: bool = False  # whether it replaces an older result
    replaces: float | None = None  # time of the result that it found; 0: none, None: older journal
    job: int | None = None  # number of the last Slurm job that began the run
    keep: Retention = "all"  # as was last asked for
    hardware: dict[str, Any] | None = None  # of a job that only trained

    def __post_init__(self) -> None:
        self._written = time.monotonic()

    @classmethod
    def read(cls, folder: Path) -> "Journal | None":
        """Read a run's journal; None without one or if it is damaged, OSError if unreadable."""
        content = read_object(folder / JOURNAL)
        if content is None or not {"config", "data"} <= content.keys():
            return None
        known = content.keys() & {key.name for key in fields(cls)} - {"folder"}
        journal = cls(folder, **{key: content[key] for key in known})
        return journal if journal._is_valid() else None

    def _is_valid(self) -> bool:
        """Return whether each entry has the right type, whatever the file has."""
        counts = [*self.updates.values()] if isinstance(self.updates, dict) else [None]
        counts += [] if self.job is None else [self.job]
        study = self.study or dict.fromkeys(_OF_A_STUDY)
        seconds = (self.train_seconds, self.wall_seconds)
        return (
            isinstance(self.config, dict)
            and isinstance(self.data, dict)
            and isinstance(study, dict)
            and study.keys() >= _OF_A_STUDY
            and all(type(value) is int and value >= 0 for value in counts)
            and all(type(value) in (int, float) and 0 <= value < math.inf for value in seconds)
            and isinstance(self.replaces, int | float | None)
            and self.keep in get_args(Retention)
            and all(isinstance(text, str) for text in (self.failed, self.log))
            and all(isinstance(is_so, bool) for is_so in (self.finished, self.useless, self.forced))
        )

    def add(self, seconds: float, *, training: bool) -> None:
        """Add time, and write the file every few seconds."""
        self.wall_seconds += seconds
        self.train_seconds += seconds if training else 0.0
        if time.monotonic() - self._written > JOURNAL_SECONDS:
            with suppress(OSError):  # a full disk for a moment must not end a training
                self.write()

    def begin(
        self, updates: dict[str, int], result: Path, *, forced: bool, job: int | None
    ) -> None:
        """Record that a job (None: a process outside Slurm) begins the run; clear its failure."""
        self.failed, self.log, self.useless = "", "", False
        self.updates, self.replaces, self.forced, self.job = updates, written(result), forced, job
        self.write()

    def is_of_job(self, job: int | None) -> bool:
        """Return whether a job was the last to begin the run, maybe before it was requeued."""
        return bool(job) and self.job == job

    def is_open_after(self, result: Path) -> bool:
        """Return whether the run began after its result was written and has not ended.

        The result is then the one that was there when it began; the order of times would say
        something else where the clock was set back.
        """
        replaced = written(result)
        if self.finished and not self.failed:
            return self.forced and 0 < replaced == self.replaces  # killed before it wrote its own
        if self.replaces is None:
            return written(self.folder / JOURNAL) >= replaced
        return replaced in (0.0, self.replaces)

    def fail(self, reason: str, log: Path | None, *, is_useless: bool = False) -> None:
        """Record why the run failed, until it is tried again."""
        # The log may be in the folder of the run whose model this one measures.
        self.log = os.path.relpath(log, self.folder) if log else ""
        self.failed, self.useless = reason, is_useless
        self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        names = [key.name for key in fields(self) if key.name != "folder"]
        write_json(self.folder / JOURNAL, {name: getattr(self, name) for name in names})


def retention(folder: Path, asked: Retention | None) -> Retention:
    """Return which checkpoints of a run to keep: those asked for, else its journal's, else all."""
    journal = None if asked else Journal.read(folder)
    return asked or (journal.keep if journal else "all")
