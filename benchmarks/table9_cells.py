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
from benchmarks.record import Found, Result
from benchmarks.reference import check_attention
from benchmarks.runner import Benchmark, Case, measure_once
from benchmarks.table9_page import ROWS, read_cells, write_page
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError
from fairseq_plugins.papers.tables import ATTENTIONS

OURS, BASE = "row", "base"


def default_rows() -> list[str]:
    """List the table's rows whose encodings exist."""
    return [row for row in ROWS if row in ENCODINGS]


def table9(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Measure the default rows under both attentions as one benchmark."""
    rows, peaks = default_rows(), []
    measure_table(settings, context, rows, ATTENTIONS)
    for (row, attention), cell in read_cells(context.table9).items():
        if row not in rows:
            continue
        key, metrics = f"{row} {attention}", cell["metrics"]
        found.ratios[key] = metrics["relative_speed"]
        found.quartiles[key] = tuple(metrics["quartiles"])
        found.medians[key], found.rounds[key] = metrics["step_seconds"], metrics["rounds"]
        found.work[key], found.rates[key] = metrics["work"], metrics["rates"]
        peaks.append(metrics["peaks"])
    found.peaks = join_peaks(peaks)
    yield Case()


def cell_file(
    settings: Settings, context: Context, row: str, attention: str
) -> tuple[Path, Result]:
    """Return a cell's JSON, and the fields that say what is measured."""
    fields = {"table": "table9", "row": row, "attention": attention, "scale": context.name}
    return context.table9 / f"{row}-{attention}.json", {**fields, "config": settings}


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
        check_attention(attention, context, causal=False)
    cells = [(row, attention) for row in rows for attention in attentions]
    try:
        for number, (row, attention) in enumerate(cells, 1):
            label = f"  [{number}/{len(cells)}] {row}, {attention}"
            work = functools.partial(measure_cell, settings, context, row, attention)
            try:
                cell = measure_once(*cell_file(settings, context, row, attention), work, context)
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
    """Measure a cell of the table.

    Raises:
        IncompatibleEncodingError: the row does not support the attention.
    """
    steps = {
        name: masked_language_model_step(settings, context, attention, encoding)
        for name, encoding in ((OURS, row), (BASE, "base"))
    }

    def cases(*_: object) -> Iterator[Case]:
        # A ratio of times that is above 1 if the row is faster.
        yield Case(steps, {OURS: (BASE, OURS)})

    quiet = replace(context, say=lambda text: None)
    found = Benchmark("", cases, settings).measure(settings, quiet)
    return {
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
    }
