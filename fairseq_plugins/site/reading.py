"""Reader of a repository's results for the site; damaged files are reported."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.parallel import map_in_processes
from fairseq_plugins.papers import TABLES
from fairseq_plugins.statistics.table_results import (
    Evidence,
    TableFolder,
    TableResults,
    find_tables,
)
from fairseq_plugins.statistics.timings import Content, read_measurement, read_timings

TARGETS = "targets.json"  # in benchmarks/results


class _Found(BaseModel):
    ratios: dict[str, float]
    quartiles: dict[str, tuple[float, float]] = {}
    medians: dict[str, float] = {}
    rates: dict[str, dict[str, float | None]] = {}


class _Circumstances(BaseModel):
    cpu: str
    cores: int | None
    gpus: list[str]


class _Benchmark(BaseModel):
    """The fields of a result of `python -m benchmarks` that the site shows."""

    model_config = ConfigDict(allow_inf_nan=False)
    benchmark: str
    found: _Found
    hardware: _Circumstances
    versions: dict[str, str]
    commit: str
    finished_at: str
    wall_seconds: float


def read_evidence(root: Path, processes: int | None = None) -> Evidence:
    """Read all results of a repository, in one process per core if `processes` is None."""
    found = [*find_tables(root)]
    damaged = [one for one in found if isinstance(one, TableResults)]
    # In parallel, since composing configurations takes most of the time.
    folders = [one for one in found if isinstance(one, TableFolder)]
    tables = map_in_processes(TableFolder.read, folders, processes)
    left_out: list[str] = []
    order = [*TABLES]
    targets = read_object(root / "benchmarks" / "results" / TARGETS) or {}
    return Evidence(
        root,
        # In the papers' order, the repository's own results first.
        sorted([*tables, *damaged], key=lambda one: (order.index(one.table.name), one.is_own)),
        read_timings(root, left_out.append),
        _benchmarks(root, left_out),
        targets.get("targets", []),
        left_out,
    )


def _benchmarks(root: Path, left_out: list[str]) -> dict[tuple[str, str], list[Content]]:
    """Read the results of benchmarks by machine and device."""
    found: dict[tuple[str, str], list[Content]] = {}
    for path in sorted((root / "benchmarks" / "results").glob("*/*/*.json")):
        content = read_measurement(root, path, _Benchmark, left_out.append)
        if content is not None:
            found.setdefault((path.parents[1].name, path.parent.name), []).append(content)
    return found
