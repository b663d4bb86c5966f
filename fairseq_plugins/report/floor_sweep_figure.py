"""The figure of the clamp sweep: a line for each row over the denominators' settings."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.figure import stem, write_summaries
from fairseq_plugins.statistics.comparisons import gather, mean


def draw_floor_sweep(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw the ranking metric, every seed a dot, as PNG, SVG and JSON."""
    ranked = table.ranked_by
    cells = gather(results, [ranked])
    picture = Picture(figsize=(11, 5), layout="constrained")
    panel = picture.subplots()
    for i, row in enumerate(table.rows):
        own = {
            a: cells[row.name, a][ranked.metric] for a in table.attentions if (row.name, a) in cells
        }
        xs = [table.attentions.index(a) + 0.08 * (i - (len(table.rows) - 1) / 2) for a in own]
        means = [mean(seeds.values()) for seeds in own.values()]
        (line,) = panel.plot(xs, means, "-", label=row.label)
        for x, seeds in zip(xs, own.values(), strict=True):
            panel.plot([x] * len(seeds), [*seeds.values()], "o", color=line.get_color())
    words = [table.word_of(a).replace(" ", "\n") for a in table.attentions]
    panel.set_xticks(range(len(words)), words)
    panel.set_ylabel(ranked.label)
    panel.grid(axis="y", alpha=0.3)
    panel.legend()
    picture.suptitle(f"{table.source}, scale {scale}: every seed, and the mean")
    base = stem(folder, table, figure, scale)
    write_summaries(base, ranked, cells, "row and setting")
    save_picture(picture, base)
