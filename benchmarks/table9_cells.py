"""The cells of the LRPE paper's Table 9: speed of a training step relative to Base.

Each row and Base take turns, and the ratio is taken in each turn. Row `base` is Base against a
second Base, which shows the noise.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.context import Context, Settings
from benchmarks.limits import join_peaks
from benchmarks.models import masked_language_model_step
from benchmarks.record import CELL_KEYS, Found, Result
from benchmarks.reference import check_attention
from benchmarks.runner import Case, by_cases, measure_once
from benchmarks.table9_page import read_cells, write_page
from benchmarks.targets import ROWS
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError
from fairseq_plugins.papers.tables import ATTENTIONS

OURS, BASE = "row", "base"


def default_rows() -> list[str]:
    """List the table's rows whose encodings exist."""
    return [row for row in ROWS if row in ENCODINGS]


def table9(settings: Settings, context: Context) -> Found:
    """Measure the default rows under both attentions as one benchmark."""
    rows = default_rows()
    measure_table(settings, context, rows, ATTENTIONS)
    found = Found()
    cells = [cell for cell in read_cells(context.table9) if cell["row"] in rows]
    for cell in cells:
        key, metrics = f"{cell['row']} {cell['attention']}", cell["metrics"]
        found.ratios[key] = metrics["relative_speed"]
        found.quartiles[key] = tuple(metrics["quartiles"])
        found.medians[key], found.rounds[key] = metrics["step_seconds"], metrics["rounds"]
        found.work[key], found.rates[key] = metrics["work"], metrics["rates"]
    found.peaks = join_peaks([cell["metrics"]["peaks"] for cell in cells])
    return found


def cell_path(context: Context, row: str, attention: str) -> Path:
    """Return the path of a cell's JSON."""
    return context.table9 / f"{row}-{attention}.json"


def measure_table(
    settings: Settings,
    context: Context,
    rows: Sequence[str],
    attentions: Sequence[str],
    on_cell: Callable[[str], object] = lambda name: None,
) -> None:
    """Measure the cells that are not done, and render the page even if it is interrupted.

    on_cell: called with the name of each new cell.

    Raises:
        Mismatch: an attention is wrong; nothing is timed.
    """
    for attention in attentions:
        check_attention(attention, causal=False, device=context.device, dtype=context.dtype)
    cells = [(row, attention) for row in rows for attention in attentions]
    try:
        for number, (row, attention) in enumerate(cells, 1):
            label = f"  [{number}/{len(cells)}] {row}, {attention}"
            work = functools.partial(measure_cell, settings, context, row, attention)
            path = cell_path(context, row, attention)
            try:
                cell = measure_once(path, CELL_KEYS, {"config": settings}, work, context)
            except IncompatibleEncodingError as error:
                context.say(f"{label}: - ({str(error).partition(':')[0]})")
                continue
            if cell is None:
                context.say(f"{label}: done before")
                continue
            on_cell(f"{row}, {attention}")
            context.say(f"{label}: {cell['metrics']['relative_speed']:.3f}")
    finally:
        write_page(context.table9)


def measure_cell(settings: Settings, context: Context, row: str, attention: str) -> Result:
    """Measure a cell of the table, without provenance.

    Raises:
        IncompatibleEncodingError: the row does not support the attention.
    """
    steps = {
        name: masked_language_model_step(settings, context, attention, encoding)
        for name, encoding in ((OURS, row), (BASE, "base"))
    }

    def cases(*_: object) -> Iterator[Case]:
        # A ratio of times that is above 1 if the row is faster.
        yield Case({name: steps[name] for name in (BASE, OURS)}, {OURS: (BASE, OURS)})

    found = by_cases(cases)(settings, replace(context, say=lambda text: None))
    return {
        "table": "table9",
        "row": row,
        "attention": attention,
        "scale": context.name,
        "metrics": {
            "relative_speed": round(found.ratios[OURS], 4),
            "quartiles": [round(value, 4) for value in found.quartiles[OURS]],
            "rounds": found.rounds[OURS],
            "step_seconds": found.medians[OURS],
            "base_step_seconds": found.medians[BASE],
            "work": vars(found.work[OURS]),
            "rates": found.rates[OURS],
            "peaks": found.peaks,
        },
        "config": settings,
    }
