"""Results of benchmarks: their JSON, its provenance, and whether it is up to date."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.context import ROOT
from fairseq_plugins.common import provenance
from fairseq_plugins.common.files import read_object, write_json

Result = dict[str, Any]

# Files that affect measurements; those of `benchmarks` that do not are excluded.
_MEASURED = ("kernels", "encodings", "attention", "modules", "models")
_NOT_MEASURED = {"page.py", "table9_page.py", "gpu_campaign.py", "job_memory.py"}


@dataclass
class Found:
    """Numbers of a benchmark by key, such as ``linear/softmax@512``.

    Attributes:
        medians: seconds of each contender and size.
        rounds: number of samples of each median.
        ratios: ratios, to which targets apply.
        quartiles: quartiles of a ratio over the rounds.
        values: other numbers, such as bytes.
        skipped: reasons of contenders that could not run.
        work: ``Work`` of a call, by the key of its median.
        rates: work per second and its share of the peak, by the same key.
        peaks: peaks of the machine, before and after.
    """

    medians: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    quartiles: dict[str, tuple[float, float]] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    work: dict[str, Any] = field(default_factory=dict)
    rates: dict[str, dict[str, float | None]] = field(default_factory=dict)
    peaks: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, seconds: Sequence[float]) -> None:
        """Add the median of a call's seconds, one per round."""
        self.medians[key], self.rounds[key] = short(statistics.median(seconds)), len(seconds)

    def add_ratio(self, key: str, one: Sequence[float], other: Sequence[float]) -> None:
        """Add the ratio of two calls' seconds in each round, in which drift cancels."""
        ratios = [a / b for a, b in zip(one, other, strict=True)]
        first, middle, third = map(short, statistics.quantiles(ratios, n=4, method="inclusive"))
        self.ratios[key], self.quartiles[key] = middle, (first, third)


def short(value: float) -> float:
    """Round to six significant digits, more than can be measured."""
    return float(f"{value:.6g}")


def source_digest(root: Path = ROOT) -> str:
    """Compute a digest of the files that affect measurements."""
    paths = [path for name in _MEASURED for path in (root / "fairseq_plugins" / name).glob("*.py")]
    paths.append(root / "fairseq_plugins" / "common" / "cpu.py")
    own = (root / "benchmarks").iterdir()
    paths += [p for p in own if p.suffix in (".py", ".cpp") and p.name not in _NOT_MEASURED]
    return provenance.digest(root, paths)


def circumstances(gpus: int) -> Result:
    """Return sources, versions and hardware: a result with others is outdated."""
    return {
        "source": source_digest(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(gpus),
    }


def load_average() -> float:
    """Return the machine's load average over the last minute."""
    return round(os.getloadavg()[0], 2)


def record(
    path: Path, fields: Result, work: Callable[[], Result], command: Sequence[str], gpus: int = 0
) -> Result:
    """Measure, and write a JSON with fields, numbers, command and provenance; return it."""
    load, began = load_average(), time.monotonic()
    numbers = work()
    wall_seconds = time.monotonic() - began
    result = {
        **fields,
        **numbers,
        "command": provenance.without_absolute_paths(list(command)),
        **circumstances(gpus),
        "commit": provenance.commit(ROOT),
        "load_average": load,
        "wall_seconds": round(wall_seconds, 1),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(path, result)
    return result


def is_current(path: Path, fields: Mapping[str, Any], gpus: int = 0) -> bool:
    """Return whether a JSON has these fields, and present sources, versions and hardware."""
    result = read_object(path) or {}
    expected = json.loads(json.dumps({**fields, **circumstances(gpus)}))  # tuples become lists
    return all(result.get(key) == value for key, value in expected.items())


_NEEDED = {"commit", "versions", "hardware", "load_average", "finished_at"}  # by pages


def read_result(path: Path, numbers: str) -> Result | None:
    """Read a JSON that has numbers under a name; None if it is missing, damaged or another's."""
    result = read_object(path) or {}
    return result if {numbers, *_NEEDED} <= result.keys() else None
