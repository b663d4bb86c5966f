"""Reads a repository's results for the site; what is damaged is named."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fairseq_plugins.common.provenance import committed
from fairseq_plugins.common.root import place
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import Table, without_paper
from fairseq_plugins.reproduce.experiments import EXPERIMENTS
from fairseq_plugins.reproduce.record.results import Say, read_results
from fairseq_plugins.reproduce.record.runs import LOCAL, Study
from fairseq_plugins.reproduce.report.page import Report
from fairseq_plugins.reproduce.report.site.evidence import Evidence, TableEvidence
from fairseq_plugins.reproduce.report.site.parallel import spread
from fairseq_plugins.reproduce.report.timings import (
    Content,
    read_json,
    read_measurement,
    read_timings,
)

TARGETS = "targets.json"  # beside the machines' folders
_OF_ANOTHER_KIND = ("preparation_curve",)  # times by size, without ratios
OWN = Path("results", LOCAL)  # where --rerun writes


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
    """A result of `python -m benchmarks`, as far as the site asks."""

    model_config = ConfigDict(allow_inf_nan=False)
    benchmark: str
    found: _Found
    hardware: _Circumstances
    versions: dict[str, str]
    commit: str
    finished_at: str
    wall_seconds: float


def read_evidence(root: Path, processes: int | None = None) -> Evidence:
    """Read a repository.

    Args:
        root: the repository.
        processes: that read side by side; None for one for each core.
    """
    found = [*_folders(root)]
    reports = [one for one in found if isinstance(one, Report)]
    lost = [one for one in found if isinstance(one, TableEvidence)]
    # Composing the configurations that results are compared with is most of the work.
    tables = spread(_table, reports, processes)
    left_out: list[str] = []
    targets = read_json(root / "benchmarks" / "results" / TARGETS) or {}
    return Evidence(
        root,
        sorted([*tables, *lost], key=_place),
        read_timings(root, left_out.append),
        _benchmarks(root, left_out),
        targets.get("targets", []),
        left_out,
    )


def _table(report: Report) -> TableEvidence:
    shown, left_out = report.read()
    return TableEvidence(
        report.shown_table,
        report.name,
        shown,
        left_out,
        report.study,
        is_rerun=report.all_results == OWN,
        is_published=bool(report.study and committed(report.root, report.root / report.folder)),
        absent=report.absent(shown),
    )


def _place(found: TableEvidence) -> tuple[int, bool]:
    """In the papers' order, the repository's own results first."""
    return [*TABLES].index(found.table.name), found.is_own


def find_reports(root: Path, say: Say) -> Iterator[Report]:
    """Every table, scale and study that has results; of damaged files alone is said what is wrong.

    Args:
        root: the repository.
        say: gets a sentence on each damaged file.
    """
    for found in _folders(root):
        if isinstance(found, Report):
            yield found
        else:
            for sentence in found.left_out:
                say(sentence)


def _folders(root: Path) -> Iterator[Report | TableEvidence]:
    """Every folder of a table's results; as evidence one that has nothing but damaged files."""
    for below in dict.fromkeys([place("results"), OWN]):
        for table in TABLES.values():
            for folder in sorted((root / below / table.name).glob("*/")):
                if any(folder.glob("*.json")):
                    yield _report(root, table, below, folder)


def _report(root: Path, table: Table, below: Path, folder: Path) -> Report | TableEvidence:
    """Of a folder of results: a scale's, or of a study, whose results say which it is."""
    experiment = EXPERIMENTS[table.experiment]
    if folder.name in experiment.scales:
        return Report(root, table, experiment.scales[folder.name], all_results=below)
    said: list[str] = []
    for result in read_results(folder, experiment.metrics, said.append):
        study = Study.read(result.get("study"))
        if study is not None:
            return Report(root, table, experiment.scales[result["scale"]], study, below)
    left_out = [f"{text}." for text in said]
    study = Study(folder.name)
    return TableEvidence(without_paper(table), folder.name, [], left_out, study, below == OWN)


def _benchmarks(root: Path, left_out: list[str]) -> dict[tuple[str, str], list[Content]]:
    """By machine and device the results of benchmarks."""
    found: dict[tuple[str, str], list[Content]] = {}
    for path in sorted((root / "benchmarks" / "results").glob("*/*/*.json")):
        if path.stem in _OF_ANOTHER_KIND:
            continue
        content = read_measurement(root, path, _Benchmark, left_out.append)
        if content is not None:
            found.setdefault((path.parents[1].name, path.parent.name), []).append(content)
    return found
