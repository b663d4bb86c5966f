"""Rendering of every page from results."""

from collections.abc import Callable
from pathlib import Path

from fairseq_plugins.common.parallel import map_in_processes
from fairseq_plugins.papers.bert import (
    BERT_GLUE_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
)
from fairseq_plugins.report.correlations import Correlations
from fairseq_plugins.report.page import Report
from fairseq_plugins.statistics.table_results import TableFolder, find_tables, read_numbers

_CORRELATED = (BERT_PROPERTIES_TABLE, BERT_GLUE_TABLE, BERT_SQUAD_TABLE)


def write_table_pages(root: Path, say: Callable[[str], None]) -> list[Path]:
    """Render page and figures of every table, scale and custom run with results.

    Args:
        root: the repository.
        say: called with a sentence on each result that is left out.

    Returns:
        The pages' paths below the root.
    """
    pages = []
    reports: list[Report] = []
    for found in find_tables(root):
        if isinstance(found, TableFolder):
            reports.append(Report(**vars(found)))
        else:
            for sentence in found.left_out:
                say(sentence)
    for page, left_out in map_in_processes(_write, reports):
        pages.append(page)
        for sentence in left_out:
            say(f"Left out of {page}: {sentence}")
    return pages


def _write(report: Report) -> tuple[Path, list[str]]:
    return report.page, report.make()


def write_correlations_page(root: Path, scale: str) -> Path | None:
    """Render the BERT paper's Table 5 at a scale; return its page, or None without results."""
    found = read_numbers(root, _CORRELATED, scale).get(scale)
    if found is None or BERT_PROPERTIES_TABLE.name not in found.cells:
        return None
    return Correlations(scale, found).write(root)
