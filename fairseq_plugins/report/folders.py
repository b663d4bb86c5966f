"""Folders of results of tables, scales and studies."""

from collections.abc import Iterator
from pathlib import Path

from fairseq_plugins.common.root import place
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import Table, without_paper
from fairseq_plugins.records.results import Say, read_results
from fairseq_plugins.records.runs import LOCAL, Study
from fairseq_plugins.report.page import Report
from fairseq_plugins.statistics.evidence import TableEvidence

OWN = Path("results", LOCAL)  # where --rerun writes


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
