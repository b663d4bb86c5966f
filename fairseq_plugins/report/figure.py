"""The figure of a table's ranking: a dot for each row and attention."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.tables import Column, Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.statistics.comparisons import Cells, deviation, gather, mean
from fairseq_plugins.statistics.inference import Seeds

DIGITS = 6  # decimals in JSON


def draw_ranking(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw the ranking column, a panel for each attention, as PNG, SVG and JSON."""
    ranked, metric = table.ranked_by, table.ranked_by.metric
    cells = gather(results, [ranked])
    most = max(sum(a == attention for _, a in cells) for attention in table.attentions)
    picture = Picture(figsize=(12, 2 + 0.2 * most), layout="constrained")
    panels = picture.subplots(1, len(table.attentions), squeeze=False)[0]
    for panel, attention in zip(panels, table.attentions, strict=True):
        found = {row: cell for (row, a), cell in cells.items() if a == attention}
        worst_first = not ranked.higher_is_better
        rows = sorted(found, key=lambda row: mean(found[row][metric].values()), reverse=worst_first)
        means = [mean(found[row][metric].values()) for row in rows]
        spreads = [deviation(found[row][metric]) or 0.0 for row in rows]
        panel.errorbar(means, range(len(rows)), xerr=spreads, fmt="o", capsize=3)
        panel.set_yticks(range(len(rows)), [table.row(row).label for row in rows], fontsize=8)
        panel.set_title(table.name_of(attention))
        panel.set_xlabel(ranked.label)
        panel.grid(axis="x", alpha=0.3)
    picture.suptitle(f"{table.source}, scale {scale}")
    base = stem(folder, table, figure, scale)
    write_summaries(base, ranked, cells, "row and attention")
    save_picture(picture, base)


def write_summaries(base: Path, ranked: Column, cells: Cells, by: str) -> None:
    """Write the ranking column as JSON; `by` names the keys of its cells."""
    numbers = {
        "-".join(cell): summary(found[ranked.metric]) for cell, found in sorted(cells.items())
    }
    what = f"{ranked.label} by {by}: mean, standard deviation and number of seeds"
    write_json(base.with_suffix(".json"), {"what": what, "rows": numbers})


def summary(seeds: Seeds) -> dict[str, float | int | None]:
    """Return a cell's mean, deviation and number of seeds, for JSON."""
    spread = deviation(seeds)
    return {
        "mean": round(mean(seeds.values()), DIGITS),
        "deviation": None if spread is None else round(spread, DIGITS),
        "seeds": len(seeds),
    }


def stem(folder: Path, table: Table, figure: Figure, scale: str) -> Path:
    """Return the path of a figure's files without a suffix; `folder` has all results."""
    return folder / (figure.name or table.name) / scale
