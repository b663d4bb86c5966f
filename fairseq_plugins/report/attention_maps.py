"""Attention maps of the first layer over identical words: the BERT paper's Figure 2."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as Picture

from fairseq_plugins.analysis.figure_files import write_numbers
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.experiments.identical_words import PATTERN
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.figures import stem

COLUMNS = 4
BLACKEST = 99  # percentile of a panel's weights that is drawn black


def draw_attention(
    root: Path,
    folder: Path,
    table: Table,
    figure: Figure,
    scale: str,
    results: Sequence[Result],
) -> None:
    """Draw a panel for each row (lowest seed), the paper's first, as PNG, SVG and rounded JSON.

    Weights are in the runs' folders, not in results: unless those of all the paper's rows exist,
    the existing figure is kept. Other rows are drawn if their weights exist.
    """
    runs: dict[str, Run] = {}
    for result in sorted(results, key=lambda result: result["seed"]):
        run = Run(table.name, scale, result["row"], result["attention"], result["seed"])
        runs.setdefault(run.row, run)
    own = [name for name in table.row_names if name in runs]
    files = {row: root / run.folder / PATTERN for row, run in runs.items()}
    available = {row for row, file in files.items() if file.is_file()}
    if not available or not available.issuperset(own):
        return
    rows = [*own, *sorted(available - {*own})]
    lines = math.ceil(len(rows) / COLUMNS)
    picture = Picture(figsize=(3 * COLUMNS, 0.6 + 3.2 * lines), layout="constrained")
    panels = picture.subplots(lines, COLUMNS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    numbers: dict[str, Any] = {}
    for panel, row in zip(panels, rows, strict=False):
        weights = np.load(files[row])
        numbers[f"{row}-{runs[row].attention}-s{runs[row].seed}"] = torch.from_numpy(weights)
        darkest = float(np.percentile(weights, BLACKEST))
        panel.set_axis_on()
        shades = PowerNorm(0.5, vmin=0.0, vmax=darkest, clip=True)
        panel.imshow(weights, cmap="Greys", norm=shades, interpolation="nearest")
        panel.set_title(table.row(row).label, fontsize=8)
        panel.tick_params(labelsize=6)
    picture.suptitle(f"{figure.source}, scale {scale}")
    base = stem(folder, table, figure, scale)
    what = "weights of attention by run: a line for each query, a number for each key"
    write_numbers(base.with_suffix(".json"), {"what": what, "weights": numbers})
    save_picture(picture, base)
