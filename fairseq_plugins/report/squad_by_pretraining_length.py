"""The figure of SQuAD after each part of pre-training (BERT paper, Figure 7)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.figure import stem
from fairseq_plugins.statistics.comparisons import mean

VERSIONS = {"v1_f1": "SQuAD v1.1", "v2_f1": "SQuAD v2.0"}
MEASURES = ("valid_loss", "v1_exact", "v1_f1", "v2_exact", "v2_f1")

Lines = Mapping[tuple[str, str], Sequence[float]]  # by (row, attention), a number for each part


def draw_pretraining_lengths(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw a panel for each version and attention as PNG and SVG, and write a JSON."""
    base = stem(folder, table, figure, scale)
    samples = [part["samples"] for part in results[0]["metrics"]["parts"]]
    numbers: dict[str, Any] = {
        "what": "by row and attention, means over seeds: what was measured after each part of the "
        "pre-training; F1 and exact matches in per cent, the loss in bits per masked token",
        "samples": samples,
        "updates": [part["updates"] for part in results[0]["metrics"]["parts"]],
        **{
            measure: {
                f"{row}-{attention}": [round(value, 4) for value in line]
                for (row, attention), line in sorted(lines_by_length(results, measure).items())
            }
            for measure in MEASURES
        },
    }
    write_json(base.with_suffix(".json"), numbers)
    shown = {result["attention"] for result in results}
    attentions = [a for a in (*table.attentions, *table.extra_attentions) if a in shown]
    picture = Picture(figsize=(13, 5 * len(attentions)), layout="constrained")
    grid = picture.subplots(len(attentions), len(VERSIONS), squeeze=False)
    for panels, attention in zip(grid, attentions, strict=True):
        for panel, (metric, version) in zip(panels, VERSIONS.items(), strict=True):
            lines = lines_by_length(results, metric)
            own = {row: line for (row, a), line in lines.items() if a == attention}
            _draw(panel, table, own, samples)
            panel.set_title(f"{version}, {attention} attention")
            panel.set_ylabel("F1")
        panels[-1].legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hiding no line
    picture.suptitle(f"{figure.source}, scale {scale}")
    save_picture(picture, base)


def lines_by_length(results: Sequence[Result], measure: str) -> Lines:
    """Average a measure over seeds after each part of pre-training."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for result in results:
        line = [part[measure] for part in result["metrics"]["parts"]]
        found.setdefault((result["row"], result["attention"]), []).append(line)
    return {
        key: [mean(values) for values in zip(*seeds, strict=True)] for key, seeds in found.items()
    }


def _draw(
    panel: Any, table: Table, lines: Mapping[str, Sequence[float]], samples: Sequence[int]
) -> None:
    """Draw a line for each row in the table's order, and mark where the longest samples begin."""
    numbers = range(1, len(samples) + 1)
    rows = [name for name in table.row_names if name in lines]
    for row in [*rows, *sorted(set(lines) - set(rows))]:
        panel.plot(numbers, lines[row], marker="o", markersize=4, label=table.row(row).label)
    panel.axvline(samples.index(samples[-1]) + 0.5, color="grey", linewidth=0.8)
    ticks = [f"{n}\n{length}" for n, length in zip(numbers, samples, strict=True)]
    panel.set_xticks(numbers, ticks)
    panel.set_xlabel("parts of the pre-training, and the length of their samples")
    panel.grid(alpha=0.3)
