"""Table 9 as Markdown: the paper's numbers, ours and what is aimed at."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import origin
from benchmarks.record import Result, read_json
from benchmarks.targets import ROWS, SPEEDS
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers import lrpe_speed
from fairseq_plugins.papers.lrpe_speed import LABELS
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.reproduce.report.render import DASH

KEYS = (
    "table",
    "row",
    "attention",
    "scale",
    "metrics",
    "command",
    "config",
    "source",
    "commit",
    "versions",
    "hardware",
    "load_average",
    "wall_seconds",
    "finished_at",
)


def read_cells(folder: Path) -> list[Result]:
    """All complete cells, by file name."""
    found = (read_json(path, KEYS) for path in sorted(folder.glob("*.json")))
    return [cell for cell in found if cell is not None]


def write_page(folder: Path) -> None:
    """Render results/table9/<cpu|gpu>.md from the cells in the folder of that name."""
    write_text(folder.with_name(f"{folder.name}.md"), render(folder.name, read_cells(folder)))


def render(scale: str, cells: Sequence[Result]) -> str:
    """The whole page."""
    by_name = {(cell["row"], cell["attention"]): cell for cell in cells}
    beyond = sorted({cell["row"] for cell in cells} - set(ROWS))
    header = ["Method"]
    for attention in ATTENTIONS:
        header += [f"{attention.capitalize()}: paper", "ours", "quartiles", "target", "verdict"]
    lines = []
    for row in (*ROWS, *beyond):
        line = [f"{LABELS[row]} (`{row}`)" if row in LABELS else f"`{row}`"]
        for attention in ATTENTIONS:
            line += _columns(row, attention, by_name.get((row, attention)))
        lines.append(line)
    parts = [f"# LRPE, Table 9, on a {scale.upper()}", caption(cells)]
    return "\n\n".join([*parts, markdown_table(header, lines, left=1)]) + "\n"


def _columns(row: str, attention: str, cell: Result | None) -> list[str]:
    paper = lrpe_speed.SPEEDS[attention].get(row)
    bound = SPEEDS[attention].get(row)
    published = f"{paper:.2f}" if paper else DASH
    aimed = f">= {bound:.2f}" if bound else DASH
    if cell is None:
        return [published, DASH, DASH, aimed, DASH]
    speed, (first, third) = cell["metrics"]["relative_speed"], cell["metrics"]["quartiles"]
    verdict = DASH if bound is None else "met" if speed >= bound else "missed"
    return [published, f"{speed:.3f}", f"{first:.3f} to {third:.3f}", aimed, verdict]


def caption(cells: Sequence[Result]) -> str:
    """What was timed on what."""
    text = (
        "Speed of a whole training step (forward, backward, update by Adam) of the bidirectional "
        "encoder with a masked language model's loss, relative to Base under the same attention: "
        "above 1 is faster than Base."
    )
    if not cells:
        return f"{text} No cell is measured yet."
    paragraphs = [text, *_distinct([_model(cell["config"]) for cell in cells])]
    paragraphs.append(
        "A row and Base take turns, and the ratio is taken in each turn: shown are its median and "
        f"quartiles over {_range([cell['metrics']['rounds'] for cell in cells])} turns. Row `base` "
        "is Base against a second Base, so that its distance from 1 is noise. The absolute "
        "embedding stays on beside a relative encoding. The paper has one row LRPE and does not "
        f"say its type: its number stands beside each. `{DASH}`: not in the paper, not measured, "
        "or the two do not go together."
    )
    paragraphs.append(origin(cells))
    return "\n\n".join(paragraphs)


def _model(config: Mapping[str, Any]) -> str:
    return (
        f"Model: {config['layers']} layers of {config['width']} features, {config['heads']} "
        f"heads, feed-forward {config['ffn']}, a dictionary of {config['dictionary']:,}, "
        f"{config['dtype']}, no dropout; {config['batch']} sequences of {config['length']} "
        "tokens. The paper does not say its sizes here."
    )


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for i, value in enumerate(values) if value not in values[:i]]


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
