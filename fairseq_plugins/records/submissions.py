"""Records of submitted Slurm jobs: a line of JSON each, the oldest first."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder

NAME = "jobs.jsonl"
_WORDS_OF_A_RUN = 3  # its table, scale or study, and name


def note(root: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Append a job and the time, in seconds since 1970, to the file in a folder."""
    with (root / folder / NAME).open("a") as file:
        file.write(json.dumps({**record, "submitted": time.time()}) + "\n")


def read(root: Path) -> list[dict[str, Any]]:
    """Read the jobs of all tables, the latest of each name, with the `folder` of its log."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((root / root_folder("checkpoints")).glob(f"*/*/{NAME}")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # the writing process was killed
                continue
            if _is_sound(record):
                found[record["name"]] = {**record, "folder": path.parent}
    return list(found.values())


def _is_sound(record: Any) -> bool:
    """Tell whether a record has the keys of a job, with the right types."""
    if not isinstance(record, dict) or not {"name", "number", "runs", "after"} <= record.keys():
        return False
    runs, since = record["runs"], record.get("submitted", 0.0)
    return (
        isinstance(record["name"], str)
        and type(record["number"]) is int
        and _is_words(record["after"])
        and isinstance(runs, list)
        and all(_is_words(run) and len(run) == _WORDS_OF_A_RUN for run in runs)
        and type(since) in (int, float)
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
