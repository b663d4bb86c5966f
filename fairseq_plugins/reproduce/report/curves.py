"""Perplexity while training: LRPE's Figure 2, from the runs of Table 8."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.reproduce.record.results import Result
from fairseq_plugins.reproduce.report.captions import caption
from fairseq_plugins.reproduce.report.figure import save
from fairseq_plugins.reproduce.report.orderings import mean

SOURCE = "LRPE, Figure 2"

Curve = list[tuple[int, float]]  # updates, perplexity


def write_figure(root: Path, table: Table, scale: str, shown: Sequence[Result]) -> None:
    """results/figure2/<scale>.json with every evaluation step of every run, .png and .md."""
    base = root / "results" / str(table.curves) / scale
    runs = {f"{r['row']}-{r['attention']}-s{r['seed']}": r["metrics"]["curve"] for r in shown}
    numbers: dict[str, Any] = {
        "what": "pairs of updates and validation loss in bits per masked token",
        "curves": runs,
    }
    write_json(base.with_suffix(".json"), numbers)
    write_text(base.with_suffix(".md"), _page(table, scale, shown))
    _draw(table, scale, mean_curves(shown), base.with_suffix(".png"))


def mean_curves(shown: Sequence[Result]) -> dict[tuple[str, str], Curve]:
    """By (row, attention) the mean perplexity over seeds at the steps that all of them have."""
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    for result in shown:
        points = {int(step): 2**loss for step, loss in result["metrics"]["curve"]}
        found.setdefault((result["row"], result["attention"]), []).append(points)
    return {
        place: [
            (step, mean(points[step] for points in seeds))
            for step in sorted(set.intersection(*map(set, seeds)))
        ]
        for place, seeds in found.items()
    }


def _page(table: Table, scale: str, shown: Sequence[Result]) -> str:
    return (
        f"# {SOURCE}, scale `{scale}`\n\n"
        "Validation perplexity of the masked language model at every evaluation step, one panel "
        "for each attention; the mean over seeds where there are several. Lower is better.\n\n"
        f"![Validation perplexity against updates]({scale}.png)\n\n"
        f"The numbers are in [{scale}.json]({scale}.json); the runs are those of "
        f"[Table 8](../{table.name}/{scale}.md).\n\n{caption(table, scale, shown)}\n"
    )


def _draw(table: Table, scale: str, curves: Mapping[tuple[str, str], Curve], path: Path) -> None:
    figure = Figure(figsize=(15, 5), layout="constrained")
    panels = figure.subplots(1, len(table.attentions), squeeze=False, sharey=True)[0]
    for panel, attention in zip(panels, table.attentions, strict=True):
        # The worst at the end first, so that the legend has the order of the lines.
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
    figure.suptitle(f"{SOURCE}, scale {scale}")
    save(figure, path)
