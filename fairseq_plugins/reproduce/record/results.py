"""The JSON of a finished run: what it holds, and how it is read back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairseq_plugins.common import provenance
from fairseq_plugins.reproduce.record.logs import TrainingLog
from fairseq_plugins.reproduce.record.recipe import differences
from fairseq_plugins.reproduce.record.runs import Run

Result = dict[str, Any]

KEYS = (
    "table",
    "row",
    "attention",
    "scale",
    "seed",
    "metrics",
    "command",
    "config",
    "data",
    "commit",
    "sources",
    "versions",
    "hardware",
    "wall_seconds",
    "finished_at",
)
SIGNATURE = "signature"  # of BLEU: how it was counted
SOURCES = "sources"  # absent from results that are older than this key
# Beside those of the experiment.
METRICS = ("train_seconds", "updates", "tokens_per_second", "parameters")


def training_metrics(trainings: Sequence[TrainingLog], train_seconds: float) -> dict[str, Any]:
    """What is told of the trainings of a run: the first one's parameters and speed, all updates."""
    first = trainings[0]
    return {
        "train_seconds": round(train_seconds, 1),
        "updates": sum(log.updates or 0 for log in trainings) or None,
        "tokens_per_second": first.tokens_per_second,
        "parameters": first.parameters,
    }


def make_result(
    run: Run,
    *,
    metrics: Mapping[str, Any],
    command: Iterable[str],
    config: Mapping[str, Any],
    data: Mapping[str, Any],
    gpus: int,
    wall_seconds: float,
    commit: str,
    sources: str,
) -> Result:
    """Everything that is recorded of a finished run, in the order of `KEYS`.

    A metric `signature` stands beside the metrics.
    """
    metrics = dict(metrics)
    signature = {SIGNATURE: metrics.pop(SIGNATURE)} if SIGNATURE in metrics else {}
    return {
        "table": run.table,
        "row": run.row,
        "attention": run.attention,
        "scale": run.scale,
        "seed": run.seed,
        "metrics": metrics,
        **signature,
        "command": list(command),
        "config": dict(config),
        "data": dict(data),
        "commit": commit,
        SOURCES: sources,
        "versions": provenance.versions(),
        "hardware": provenance.hardware(gpus),
        "wall_seconds": round(wall_seconds, 1),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_result(path: Path, required: Iterable[str]) -> Result | None:
    """A complete result, or None where the file is missing, cut off or of another shape.

    required: the metrics that its experiment measures.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or set(found) - {SIGNATURE} | {SOURCES} != set(KEYS):
        return None
    numbers = found["metrics"] if isinstance(found["metrics"], dict) else {}
    return found if {*METRICS, *required} <= set(numbers) else None


def mismatch(
    result: Result, run: Run, config: Mapping[str, Any], data: Mapping[str, Any] | None
) -> list[str]:
    """Why a result is not the one that this run would make; empty where it is.

    data: as `describe_data` gives it; None where the data is not there to compare with.
    """
    reasons = [
        f"{key}: {result[key]} -> {getattr(run, key)}"
        for key in ("table", "scale", "row", "attention", "seed")
        if result[key] != getattr(run, key)
    ]
    reasons += differences(result["config"], config)
    if data is not None and not provenance.same_data(result["data"], dict(data)):
        reasons.append("the data differs")
    return reasons


def read_results(root: Path, table: str, scale: str, required: Iterable[str]) -> list[Result]:
    """All complete results of a table at a scale, by file name."""
    folder = root / "results" / table / scale
    found = (read_result(path, required) for path in sorted(folder.glob("*.json")))
    return [result for result in found if result is not None]
