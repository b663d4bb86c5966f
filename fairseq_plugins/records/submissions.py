"""Records of submitted Slurm jobs, in jobs.jsonl: a line of JSON each, the oldest first."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder

NAME = "jobs.jsonl"
RENDER = "render"  # suffix of the name of a job that renders a page
RunKey = tuple[str, str, str]  # table, folder of the scale or study, name of the run


def note(root: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Append a job and the time, in seconds since 1970, to the file in a folder."""
    with (root / folder / NAME).open("a") as file:
        # A line that was cut off has no end; the next record must not become a part of it.
        file.write("\n" + json.dumps({**record, "submitted": time.time()}) + "\n")


def read(root: Path) -> list[dict[str, Any]]:
    """Read the jobs of all tables, the latest of each name, with the `folder` of its log."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((root / root_folder("checkpoints")).glob(f"*/*/{NAME}")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # empty, or the writing process was killed
                continue
            if _is_sound(record):
                found[record["name"]] = {**record, "folder": path.parent}
    return list(found.values())


def _is_sound(record: Any) -> bool:
    """Return whether a record has the keys of a job, with the right types."""
    match record:
        case {"name": str(), "number": int(number), "runs": [*runs], "after": [*after]}:
            since = record.get("submitted", 0.0)
            return (
                not isinstance(number, bool)
                and all(isinstance(name, str) for name in after)
                and all(isinstance(run, list) and [*map(type, run)] == [str] * 3 for run in runs)
                and type(since) in (int, float)
            )
    return False
