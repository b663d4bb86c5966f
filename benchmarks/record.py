"""Results of benchmarks: their JSON, its provenance, and whether it is up to date."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.timing import Samples, quartiles
from fairseq_plugins.common import provenance

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]
T = TypeVar("T")
LINES_PER_SECOND = ", lines per second"  # suffix of values that are speeds
_PROVENANCE = (
    "source",
    "commit",
    "versions",
    "hardware",
    "load_average",
    "wall_seconds",
    "finished_at",
)
KEYS = ("benchmark", "device", "settings", "found", "command", *_PROVENANCE)
CELL_KEYS = (
    *("table", "row", "attention", "scale", "metrics", "command", "config"),
    *_PROVENANCE,
)

# Files that affect measurements; those of `benchmarks` that do not are excluded.
_MEASURED = ("kernels", "encodings", "attention", "modules", "models")
_NOT_MEASURED = {
    *("page.py", "targets.py", "table9_page.py", "gpu_campaign.py"),
    *("preparation_curve.py", "job_memory.py", "processes.py"),
}


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

    def add(self, samples: Samples, steps: int = 1) -> None:
        """Add the medians of samples of so many steps."""
        for name in samples.seconds:
            self.medians[name] = short(samples.median(name) / steps)
            self.rounds[name] = samples.rounds

    def add_ratio(self, key: str, values: Sequence[float]) -> None:
        """Add the median and the quartiles of a ratio over the rounds."""
        self.ratios[key] = short(statistics.median(values))
        first, third = quartiles(list(values))
        self.quartiles[key] = (short(first), short(third))


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


def circumstances(gpus: int) -> dict[str, Any]:
    """Return sources, versions and hardware: a result with others is outdated."""
    return {
        "source": source_digest(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(gpus),
    }


def load_average() -> float:
    """Return the machine's load average over the last minute."""
    return round(os.getloadavg()[0], 2)


def end_of_run(load: float, wall_seconds: float) -> dict[str, Any]:
    """Return commit, times, and ``load``, the load average at the start."""
    return {
        "commit": provenance.commit(ROOT),
        "load_average": load,
        "wall_seconds": round(wall_seconds, 1),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measured(
    work: Callable[[], T], command: Sequence[str], gpus: int = 0
) -> tuple[T, dict[str, Any]]:
    """Run a measurement; return its result, and its command and provenance."""
    load, began = load_average(), time.monotonic()
    found = work()
    about = {**circumstances(gpus), **end_of_run(load, time.monotonic() - began)}
    return found, {"command": provenance.without_absolute_paths(list(command)), **about}


def read_json(path: Path, keys: Sequence[str]) -> Result | None:
    """Read a JSON object with exactly these keys; None if missing, damaged or different."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and set(result) == set(keys) else None


def is_current(result: Result, expected: Mapping[str, Any]) -> bool:
    """Return whether a result has these settings and circumstances."""
    plain = json.loads(json.dumps(dict(expected)))  # tuples become lists
    return all(result.get(key) == value for key, value in plain.items())
