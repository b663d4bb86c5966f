"""What a run's folder remembers: what it trains, and for how long it has."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import write_json

JOURNAL_SECONDS = 5.0  # at most this much time is not counted when a run is killed


def written(path: Path) -> float:
    """When a file was, in seconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_sound(content: dict[str, Any]) -> bool:
    """Tell whether each entry of a journal has the right type."""
    updates, job = content["updates"], content["job"]
    seconds = (content["train_seconds"], content["wall_seconds"])
    return (
        all(isinstance(content[key], dict) for key in ("config", "data", "updates"))
        and all(_is_count(value) for value in updates.values())
        and all(type(value) in (int, float) and 0 <= value < math.inf for value in seconds)
        and all(isinstance(content[key], str) for key in ("failed", "log"))
        and all(isinstance(content[key], bool) for key in ("finished", "useless", "forced"))
        and (job is None or _is_count(job))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


class Journal:
    """A run's run.json: what it trains, and the seconds it took over all its stretches.

    `updates` in it are those of each training by its name, in their order; 0 where epochs end it.
    `failed` says why the run could not be finished, empty while it may be; `log` is the file that
    says more, seen from its folder. `useless`: what was trained cannot be measured.
    `forced`: whether an older result is to be replaced; `job`: the Slurm job that began it last.
    """

    def __init__(self, path: Path, config: dict[str, Any], data: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "config": config,
            "data": data,
            "updates": {},
            "train_seconds": 0.0,
            "wall_seconds": 0.0,
            "finished": False,
            "failed": "",
            "log": "",
            "useless": False,
            "forced": False,
            "job": None,
        }
        self._written = time.monotonic()

    @classmethod
    def read(cls, path: Path) -> "Journal | None":
        """The journal in a file; None where there is none or it is damaged."""
        try:
            content = json.loads(path.read_text())
            journal = cls(path, content["config"], content["data"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        journal.content = {**journal.content, **content}
        return journal if _is_sound(journal.content) else None

    def add(self, seconds: float, *, training: bool) -> None:
        """Count time; the file follows every few seconds."""
        self.content["wall_seconds"] += seconds
        if training:
            self.content["train_seconds"] += seconds
        if time.monotonic() - self._written > JOURNAL_SECONDS:
            self.write()

    def begin(self, updates: dict[str, int], *, forced: bool, job: int | None) -> None:
        """Note what is trained, for what and where, and that nothing has failed yet."""
        self.content |= {"updates": updates, "failed": "", "log": "", "useless": False}
        self.content |= {"forced": forced, "job": job}
        self.write()

    def is_of_job(self, job: int | None) -> bool:
        """Whether that job began the run last, perhaps before it was put back into the queue."""
        return bool(job) and self.content["job"] == job

    def is_open_after(self, result: Path) -> bool:
        """Whether the run was begun again after a result, and not brought to its end since."""
        is_open = self.content["failed"] or not self.content["finished"]
        return bool(is_open) and written(self.path) >= written(result)

    def fail(self, reason: str, log: Path | None, *, is_useless: bool = False) -> None:
        """Note why the run could not be finished, until it is tried again."""
        # Of a run that measures another one's model it is in the folder of that.
        seen = os.path.relpath(log, self.path.parent) if log else ""
        self.content |= {"failed": reason, "log": seen, "useless": is_useless}
        self.write()

    def write(self) -> None:
        write_json(self.path, self.content)
        self._written = time.monotonic()
