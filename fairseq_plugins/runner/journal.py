"""The journal of a run: configuration, data, time spent and state, in its run.json."""

import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import read_object, write_json

JOURNAL = "run.json"  # in a run's folder
_OF_A_STUDY = {"name", "overrides", "data", "scale"}
JOURNAL_SECONDS = 5.0  # most time that is not counted when a run is killed


def written(path: Path) -> float:
    """Return when a file was written, in seconds since 1970; 0 if it is missing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_valid(content: dict[str, Any]) -> bool:
    """Return whether each entry of a journal has the right type."""
    counts = [*content["updates"].values()] if isinstance(content["updates"], dict) else [None]
    counts += [] if content["job"] is None else [content["job"]]
    study = content["study"] or dict.fromkeys(_OF_A_STUDY)
    seconds = (content["train_seconds"], content["wall_seconds"])
    return (
        all(isinstance(content[key], dict) for key in ("config", "data"))
        and isinstance(study, dict)
        and study.keys() >= _OF_A_STUDY
        and all(type(value) is int and value >= 0 for value in counts)
        and all(type(value) in (int, float) and 0 <= value < math.inf for value in seconds)
        and isinstance(content["replaces"], int | float | None)
        and all(isinstance(content[key], str) for key in ("failed", "log"))
        and all(isinstance(content[key], bool) for key in ("finished", "useless", "forced"))
    )


class Journal:
    """A run's run.json, kept over all the processes that work on the run.

    Keys of `content`:
        config, data: the recorded configuration, and the description of the data.
        study: from `Run.located_study`.
        updates: of each training by name, in order; 0 if its epochs are limited.
        train_seconds, wall_seconds: time of training alone, and of all commands.
        finished: whether the run has ended.
        failed: reason of a failure, else empty.
        log: of the command that failed, relative to the folder.
        useless: whether it failed because its trained model cannot be measured.
        forced: whether it replaces an older result.
        replaces: when its result was written that was there when it began; 0 for none, None if an
            earlier version wrote the journal.
        job: number of the last Slurm job that began the run.
    """

    def __init__(self, folder: Path, config: dict[str, Any], data: dict[str, Any]) -> None:
        self.path = folder / JOURNAL
        self.content: dict[str, Any] = {
            "config": config,
            "data": data,
            "study": None,
            "updates": {},
            "train_seconds": 0.0,
            "wall_seconds": 0.0,
            "finished": False,
            "failed": "",
            "log": "",
            "useless": False,
            "forced": False,
            "replaces": None,
            "job": None,
        }
        self._written = time.monotonic()

    @classmethod
    def read(cls, folder: Path) -> "Journal | None":
        """Read a run's journal; None without one or if it is damaged, OSError if unreadable."""
        content = read_object(folder / JOURNAL)
        if content is None or not {"config", "data"} <= content.keys():
            return None
        journal = cls(folder, content["config"], content["data"])
        journal.content |= content
        return journal if _is_valid(journal.content) else None

    def add(self, seconds: float, *, training: bool) -> None:
        """Add time, and write the file every few seconds."""
        self.content["wall_seconds"] += seconds
        if training:
            self.content["train_seconds"] += seconds
        if time.monotonic() - self._written > JOURNAL_SECONDS:
            with suppress(OSError):  # a full disk for a moment must not end a training
                self.write()

    def begin(
        self, updates: dict[str, int], result: Path, *, forced: bool, job: int | None
    ) -> None:
        """Record that a job (None: a process outside Slurm) begins the run; clear its failure."""
        earlier = {"failed": "", "log": "", "useless": False, "replaces": written(result)}
        self.content |= {**earlier, "updates": updates, "forced": forced, "job": job}
        self.write()

    def is_of_job(self, job: int | None) -> bool:
        """Return whether a job was the last to begin the run, maybe before it was requeued."""
        return bool(job) and self.content["job"] == job

    def is_open_after(self, result: Path) -> bool:
        """Return whether the run began after its result was written and has not ended.

        The result is then the one that was there when it began; the order of times would say
        something else where the clock was set back.
        """
        is_open, replaced = self.content["failed"] or not self.content["finished"], written(result)
        if self.content["replaces"] is None:
            return bool(is_open) and written(self.path) >= replaced
        return bool(is_open) and replaced in (0.0, self.content["replaces"])

    def fail(self, reason: str, log: Path | None, *, is_useless: bool = False) -> None:
        """Record why the run failed, until it is tried again."""
        # The log may be in the folder of the run whose model this one measures.
        relative = os.path.relpath(log, self.path.parent) if log else ""
        self.content |= {"failed": reason, "log": relative, "useless": is_useless}
        self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        write_json(self.path, self.content)
