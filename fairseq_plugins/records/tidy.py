"""Tidy table of all results: a line for each number of each run."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.metrics import MetricsSchema
from fairseq_plugins.records.recipe_files import split_config
from fairseq_plugins.records.results import Result, Say, read_results

# Columns and their descriptions.
COLUMNS = {
    "paper": "the paper of the table; of tables without one their heading",
    "table": "the table's name, as `fairseq-pe table` takes it",
    "scale": "of the recipe: toy, mini, published, small or paper",
    "study": "the name of a run with settings of its own; empty otherwise",
    "row": "position encoding, as configs/model has it",
    "attention": "linear, vanilla (softmax), or a setting of the table",
    "seed": "of the run",
    "metric": "a key of the run's JSON; a key inside another follows a point",
    "value": "the number",
    "settings": "what a run with settings of its own sets, sorted; empty otherwise",
    "recipe": "digest of all other settings but the model's, that of each training",
    "sources": "digest of the code that made the run; empty in older results",
    "commit": "of the code that made the run",
    "finished_at": "when, in UTC",
}


def read_tidy(
    folder: Path, tables: Iterable[tuple[Table, type[MetricsSchema]]], say: Say
) -> Iterator[dict[str, Any]]:
    """Read every result below a folder, of tables with their metrics, as rows with keys `COLUMNS`.

    say: called with the error of each invalid file.
    """
    for table, metrics in tables:
        for scale in sorted((folder / table.name).glob("*/")):
            for result in metrics.comparable(read_results(scale, metrics, say)):
                yield from _rows(table, result)


def _rows(table: Table, result: Result) -> Iterator[dict[str, Any]]:
    own = {
        "paper": table.source.partition(",")[0],
        **{key: result[key] for key in ("table", "scale")},
        "study": (result.get("study") or {}).get("name", ""),
        **{key: result[key] for key in ("row", "attention", "seed")},
    }
    made = {
        "settings": " ".join(sorted((result.get("study") or {}).get("overrides", ()))),
        "recipe": " ".join(split_config(result["config"])[1]),
        "sources": result.get("sources") or "",
        **{key: result[key] for key in ("commit", "finished_at")},
    }
    for metric, value in _numbers(result["metrics"]):
        yield {**own, "metric": metric, "value": value, **made}


def _numbers(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Numbers by key; lists, as curves, are left out."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value
