"""The BERT paper's Table 5 as two heat maps: its numbers, and ours."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PROPERTIES, SOURCE
from fairseq_plugins.papers.tables import MARK
from fairseq_plugins.report.correlations import Grid

Cell = tuple[float | None, str]  # number and text
WIDTH = 13  # characters per line of a column's label


def draw_correlations(stem: Path, scale: str, grid: Grid) -> None:
    """Draw ``stem``.png and .svg: panels of the paper and ours, blue below 0, red above."""
    papers = [[(one.paper_order, one.paper) for one in numbers] for *_, numbers in grid]
    ours = [
        [(one.order, f"{one.ours}{MARK if one.mark else ''}") for one in numbers]
        for *_, numbers in grid
    ]
    picture = Picture(figsize=(13, 6.5), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    panels[0].set_yticks(range(len(PERFORMANCES)), [column.label for _, column in PERFORMANCES])
    for panel, title, rows in zip(panels, ("paper", "ours"), (papers, ours), strict=True):
        image = _map(panel, rows)
        panel.set_title(title)
    picture.colorbar(image, ax=panels, label="Pearson correlation", shrink=0.8)
    picture.suptitle(f"{SOURCE}, scale {scale}")
    save_picture(picture, stem)


def _map(panel: Any, rows: Sequence[Sequence[Cell]]) -> Any:
    """Draw a heat map with numbers; white without one."""
    values = [[float("nan") if number is None else number for number, _ in row] for row in rows]
    image = panel.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for i, row in enumerate(rows):
        for j, (number, text) in enumerate(row):
            if number is not None:
                colour = "white" if abs(number) > 0.6 else "black"
                panel.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    labels = [fill(column.label, WIDTH, break_long_words=False) for column in PROPERTIES]
    panel.set_xticks(range(len(labels)), labels, fontsize=8)
    return image
