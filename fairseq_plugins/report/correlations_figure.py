"""The BERT paper's Table 5 as two heat maps: its numbers, and ours."""

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.bert_correlations import PERFORMANCES, PRINTED, PROPERTIES, SOURCE
from fairseq_plugins.papers.tables import MARK, Column
from fairseq_plugins.statistics.inference import Estimate

Estimates = Mapping[tuple[str, str], Estimate | None]  # by property and performance
Number = tuple[float, str] | None  # value and text

WIDTH = 13  # characters per line of a column's label


def draw_correlations(stem: Path, scale: str, ours: Estimates) -> None:
    """Draw ``stem``.png and .svg: panels of the paper and ours, blue below 0, red above."""

    def printed(own: Column, column: Column) -> Number:
        number = PRINTED[own.metric].get(column.metric)
        return None if number is None else (number.mean, f"{number.mean:+.2f}")

    def measured(own: Column, column: Column) -> Number:
        found = ours.get((own.metric, column.metric))
        if found is None:
            return None
        return found.effect, f"{found.effect:+.2f}{MARK if found.is_apart else ''}"

    picture = Picture(figsize=(13, 6.5), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    panels[0].set_yticks(range(len(PERFORMANCES)), [column.label for _, column in PERFORMANCES])
    for panel, title, number in zip(panels, ("paper", "ours"), (printed, measured), strict=True):
        image = _map(panel, number)
        panel.set_title(title)
    picture.colorbar(image, ax=panels, label="Pearson correlation", shrink=0.8)
    picture.suptitle(f"{SOURCE}, scale {scale}")
    save_picture(picture, stem)


def _map(panel: Any, number: Callable[[Column, Column], Number]) -> Any:
    """Draw a heat map with numbers; white without one."""
    rows = [[number(own, column) for own in PROPERTIES] for _, column in PERFORMANCES]
    values = [[float("nan") if one is None else one[0] for one in row] for row in rows]
    image = panel.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for i, row in enumerate(rows):
        for j, one in enumerate(row):
            if one is not None:
                colour = "white" if abs(one[0]) > 0.6 else "black"
                panel.text(j, i, one[1], ha="center", va="center", fontsize=8, color=colour)
    labels = [fill(column.label, WIDTH, break_long_words=False) for column in PROPERTIES]
    panel.set_xticks(range(len(labels)), labels, fontsize=8)
    return image
