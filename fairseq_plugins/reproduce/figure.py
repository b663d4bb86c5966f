"""A dot per row and attention, for the eye; the numbers are in the Markdown."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.reproduce.orderings import deviation, gather, mean
from fairseq_plugins.reproduce.results import Result
from fairseq_plugins.reproduce.tables import ATTENTIONS, Table


def draw(table: Table, scale: str, results: Sequence[Result], path: Path) -> None:
    """Write a PNG of test perplexities, one panel per attention, the best row on top."""
    from matplotlib.figure import Figure

    cells = gather(results)
    most = max(sum(a == attention for _, a in cells) for attention in ATTENTIONS)
    figure = Figure(figsize=(12, 2 + 0.2 * most), layout="constrained")
    panels = figure.subplots(1, len(ATTENTIONS))
    for panel, attention in zip(panels, ATTENTIONS, strict=True):
        found = {row: cell for (row, a), cell in cells.items() if a == attention}
        rows = sorted(found, key=lambda row: mean(found[row].test), reverse=True)
        means = [mean(found[row].test) for row in rows]
        spreads = [deviation(found[row].test) or 0.0 for row in rows]
        panel.errorbar(means, range(len(rows)), xerr=spreads, fmt="o", capsize=3)
        panel.set_yticks(range(len(rows)), [table.row(row).label for row in rows], fontsize=8)
        panel.set_title(f"{attention} attention")
        panel.set_xlabel("test perplexity")
        panel.grid(axis="x", alpha=0.3)
    figure.suptitle(f"{table.source}, scale {scale}")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110, metadata={"Software": None})
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(image.getvalue())
    os.replace(beside, path)
