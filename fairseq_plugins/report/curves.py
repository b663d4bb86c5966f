"""Validation perplexity during training: LRPE's Figure 2, from the runs of Table 8."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.common.report_view import site_link
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.figure import stem
from fairseq_plugins.report.markup import write_page
from fairseq_plugins.statistics.series import Curve, mean_curves


def draw_curves(
    folder: Path, table: Table, figure: Figure, scale: str, shown: Sequence[Result]
) -> None:
    """Write a JSON of every run's evaluation steps, a PNG, an SVG, and their page."""
    base = stem(folder, table, figure, scale)
    runs = {f"{r['row']}-{r['attention']}-s{r['seed']}": r["metrics"]["curve"] for r in shown}
    numbers: dict[str, Any] = {
        "what": "pairs of updates and validation loss in bits per masked token",
        "curves": runs,
    }
    write_json(base.with_suffix(".json"), numbers)
    write_page(base.with_suffix(".md"), _page(table, figure, scale, shown))
    picture = _picture(table, mean_curves(shown))
    picture.suptitle(f"{figure.source}, scale {scale}")
    save_picture(picture, base)


def _page(table: Table, figure: Figure, scale: str, shown: Sequence[Result]) -> str:
    return (
        f"# {figure.source}, scale `{scale}`\n\n"
        "Validation perplexity of the masked language model at every evaluation step, one panel "
        "for each attention; the mean over seeds where there are several. Lower is better.\n\n"
        f"![Validation perplexity against updates]({scale}.png)\n\n"
        f"As [SVG]({scale}.svg); the numbers are in [{scale}.json]({scale}.json); the runs are "
        f"those of [Table 8](../{table.name}/{scale}.md). "
        f"{site_link(f'figures.html#{table.name}-{scale}-curves', 'lines to hide and to show')}\n\n"
        f"{caption(table, scale, shown, has_cells=False)}\n"
    )


def _picture(table: Table, curves: Mapping[tuple[str, str], Curve]) -> Picture:
    picture = Picture(figsize=(15, 5), layout="constrained")
    panels = picture.subplots(1, len(table.attentions), squeeze=False, sharey=True)[0]
    for panel, attention in zip(panels, table.attentions, strict=True):
        # Sorted by the last value, so that the legend has the order of the lines.
        own = {row: curve for (row, a), curve in curves.items() if a == attention and curve}
        for i, row in enumerate(sorted(own, key=lambda name: -own[name][-1][1])):
            steps, perplexities = zip(*own[row], strict=True)
            style = ("-", "--", ":", "-.")[i // 10 % 4]  # matplotlib has ten colours
            label = table.row(row).label
            panel.plot(steps, perplexities, style, marker=".", linewidth=1.2, label=label)
        panel.set_yscale("log")
        panel.set_title(f"{attention} attention")
        panel.set_xlabel("updates")
        panel.grid(alpha=0.3, which="both")
        if own:
            panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hiding no line
    panels[0].set_ylabel("validation perplexity")
    return picture
