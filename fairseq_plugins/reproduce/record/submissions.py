"""What was submitted to Slurm from here: a line of JSON for each job, the first one first."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import place

NAME = "jobs.jsonl"


def note(root: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Add a job to the file in a folder below `root`, with the time, in seconds since 1970."""
    with (root / folder / NAME).open("a") as file:
        file.write(json.dumps({**record, "submitted": time.time()}) + "\n")


def read(root: Path) -> list[dict[str, Any]]:
    """All jobs of all tables, the latest of each name, with the `folder` of its log."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((root / place("checkpoints")).glob(f"*/*/{NAME}")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # cut off while it was written
                continue
            found[record["name"]] = {**record, "folder": path.parent}
    return list(found.values())
