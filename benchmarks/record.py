"""What a benchmark finds, the JSON that keeps it, and whether that JSON still holds."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.timing import Samples, quartiles
from fairseq_plugins.common import provenance
from fairseq_plugins.common.files import write_json

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]
LINES_PER_SECOND = ", lines per second"  # what values that are a speed are called
KEYS = (
    "benchmark",
    "device",
    "settings",
    "found",
    "command",
    "source",
    "commit",
    "versions",
    "hardware",
    "load_average",
    "wall_seconds",
    "finished_at",
)

# Files that decide what is timed; those of `benchmarks` that only say it are left out.
_MEASURED = ("kernels", "encodings", "attention", "modules", "models")
_SAYING = {
    *("page.py", "targets.py", "table9_page.py", "figure_page.py"),
    *("campaign.py", "gpu_campaign.py", "preparation_curve.py"),
    *("job_memory.py", "processes.py"),
}


@dataclass
class Found:
    """What a benchmark found, by key such as ``linear/softmax@512``.

    Attributes:
        medians: seconds, one key per contender and size.
        rounds: how many samples a median is of.
        ratios: what the targets are about.
        quartiles: of a ratio over the rounds.
        values: other numbers, such as bytes.
        skipped: contenders that could not run, with the reason.
        work: ``Work`` of a call, by the key of its median.
        rates: work per second and its share of a peak, by the same key.
        peaks: of the machine, before and after.
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

    def add(self, samples: Samples, suffix: str = "") -> None:
        """Keep the medians of samples under their names with ``suffix``."""
        for name in samples.seconds:
            self.medians[name + suffix] = short(samples.median(name))
            self.rounds[name + suffix] = samples.rounds

    def add_ratio(self, key: str, values: Sequence[float]) -> None:
        """Keep the median and the quartiles of a ratio taken in every round."""
        self.ratios[key] = short(statistics.median(values))
        first, third = quartiles(list(values))
        self.quartiles[key] = (short(first), short(third))


def short(value: float) -> float:
    """Six digits, which is more than can be measured."""
    return float(f"{value:.6g}")


def source_digest(root: Path = ROOT) -> str:
    """Of the files that decide what is timed: another one makes a result outdated."""
    paths = [path for name in _MEASURED for path in (root / "fairseq_plugins" / name).glob("*.py")]
    paths.append(root / "fairseq_plugins" / "common" / "cpu.py")
    own = (root / "benchmarks").iterdir()
    paths += [p for p in own if p.suffix in (".py", ".cpp") and p.name not in _SAYING]
    return provenance.digest(root, paths)


def circumstances(gpus: int) -> dict[str, Any]:
    """What a result is compared by: another source, version or machine needs another run."""
    return {
        "source": source_digest(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(gpus),
    }


def load_average() -> float:
    """Of the last minute: how busy the machine is, which a run should begin by asking."""
    return round(os.getloadavg()[0], 2)


def end_of_run(load: float, wall_seconds: float) -> dict[str, Any]:
    """The commit and the time; ``load`` is that of the run's beginning."""
    return {
        "commit": provenance.commit(ROOT),
        "load_average": load,
        "wall_seconds": round(wall_seconds, 1),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_result(
    path: Path,
    *,
    benchmark: str,
    device: str,
    settings: Mapping[str, Any],
    found: Found,
    command: Sequence[str],
    around: Mapping[str, Any],
    load: float,
    wall_seconds: float,
) -> None:
    """Write a result whole or not at all."""
    result: Result = {
        "benchmark": benchmark,
        "device": device,
        "settings": dict(settings),
        "found": asdict(found),
        "command": list(command),
        **around,
        **end_of_run(load, wall_seconds),
    }
    write_json(path, {key: result[key] for key in KEYS})


def read_json(path: Path, keys: Sequence[str]) -> Result | None:
    """A JSON with exactly these keys, or None where it is missing, cut off or another one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and set(result) == set(keys) else None


def still_holds(result: Result, expected: Mapping[str, Any]) -> bool:
    """Return whether a result is of these settings and circumstances."""
    # Through JSON, where a tuple is a list.
    plain = json.loads(json.dumps(dict(expected)))
    return all(result.get(key) == value for key, value in plain.items())
