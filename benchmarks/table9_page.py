"""The page of Table 9: the paper's numbers and ours, then the targets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import origin as origin_of
from benchmarks.record import CELL_KEYS, Result, read_json
from benchmarks.targets import ROWS, table9_targets
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_text, writing
from fairseq_plugins.common.pages import Page, Section, bullets, made, site_link
from fairseq_plugins.common.pictures import save_png
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers import lrpe_speed
from fairseq_plugins.papers.lrpe_speed import LABELS
from fairseq_plugins.papers.tables import ATTENTIONS


def read_cells(folder: Path) -> list[Result]:
    """Read all complete cells, by file name."""
    found = (read_json(path, CELL_KEYS) for path in sorted(folder.glob("*.json")))
    return [cell for cell in found if cell is not None]


def write_page(folder: Path) -> None:
    """Render results/table9/<cpu|gpu>.md and .png from the cells in that folder."""
    cells = read_cells(folder)
    write_text(folder.with_name(f"{folder.name}.md"), render(folder.name, cells))
    if cells and is_installed("matplotlib"):
        draw(cells, folder.with_name(f"{folder.name}.png"))


def render(scale: str, cells: Sequence[Result]) -> str:
    """Render the Markdown page."""
    by_name = {(cell["row"], cell["attention"]): cell for cell in cells}
    rows = (*ROWS, *sorted({cell["row"] for cell in cells} - set(ROWS)))
    measured, aimed = [], []
    for row in rows:
        label = f"{LABELS[row]} (`{row}`)" if row in LABELS else f"`{row}`"
        columns = [_columns(row, a, by_name.get((row, a))) for a in ATTENTIONS]
        measured.append([label, *(text for found in columns for text in found[:3])])
        targets = [text for found in columns for text in (found[3], found[1], found[4])]
        if any(found[3] != DASH for found in columns):
            aimed.append([label, *targets])

    def table(words: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        header = ["Method"]
        for attention in ATTENTIONS:
            header += [f"{attention.capitalize()}: {words[0]}", *words[1:]]
        return markdown_table(header, lines, left=1)

    sections = []
    if cells and is_installed("matplotlib"):
        about = "Dot: ours with its quartiles; diamond: the paper's; red: this project's target."
        sections.append(Section("Figure", [f"![Speeds against Base]({scale}.png)", about]))
    about = "What a row's arithmetic allows; a verdict is whether the median meets it."
    page = table(("target", "ours", "verdict"), aimed)
    sections.append(Section("Targets of this project", [about, page], is_folded=True))
    caption, notes = describe(cells)
    origin = [made(origin_of(cells), site_link("speed.html"))] if cells else []
    result = [table(("paper", "ours", "quartiles"), measured), bullets(notes)]
    title = f"LRPE, Table 9, on a {scale.upper()}"
    return Page(title, caption, result, [*sections, *origin]).markdown()


def draw(cells: Sequence[Result], path: Path) -> None:
    """Draw a PNG with a panel for each attention: ours with quartiles, paper and target."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 5), layout="constrained")
    panels = picture.subplots(1, len(ATTENTIONS), squeeze=False)[0]
    for panel, attention in zip(panels, ATTENTIONS, strict=True):
        found = {cell["row"]: cell["metrics"] for cell in cells if cell["attention"] == attention}
        rows = [row for row in (*ROWS, *sorted(set(found) - set(ROWS))) if row in found]
        for y, row in enumerate(rows):
            speed, (first, third) = found[row]["relative_speed"], found[row]["quartiles"]
            panel.plot([first, third], [y, y], color="tab:blue", linewidth=2)
            panel.plot(speed, y, "o", color="tab:blue")
            if paper := lrpe_speed.SPEEDS[attention].get(row):
                panel.plot(paper, y, "D", color="grey", markerfacecolor="none")
            if target := table9_targets(attention).get(row):
                panel.plot(target.bound, y, "|", color="tab:red", markersize=14)
        panel.set_yticks(range(len(rows)), [LABELS.get(row, row) for row in rows], fontsize=8)
        panel.invert_yaxis()
        panel.axvline(1.0, color="black", linewidth=0.8)
        panel.set_title(f"{attention} attention")
        panel.set_xlabel("speed against Base")
        panel.grid(axis="x", alpha=0.3)
    picture.suptitle("dot: ours with its quartiles; diamond: the paper's; red: aimed at")
    with writing(path) as (file,):
        save_png(picture, file)


def _columns(row: str, attention: str, cell: Result | None) -> list[str]:
    paper = lrpe_speed.SPEEDS[attention].get(row)
    target = table9_targets(attention).get(row)
    published = f"{paper:.2f}" if paper else DASH
    aimed = target.bound_text if target else DASH
    if cell is None:
        return [published, DASH, DASH, aimed, DASH]
    speed, (first, third) = cell["metrics"]["relative_speed"], cell["metrics"]["quartiles"]
    verdict = DASH if target is None else "met" if target.is_met(speed) else "missed"
    return [published, f"{speed:.3f}", f"{first:.3f} to {third:.3f}", aimed, verdict]


def describe(cells: Sequence[Result]) -> tuple[str, list[str]]:
    """Describe what was measured, in a line and in notes."""
    text = (
        "Speed of a whole training step (forward, backward, update by Adam) of the bidirectional "
        "encoder with a masked language model's loss, relative to Base under the same attention: "
        "above 1 is faster than Base."
    )
    if not cells:
        return f"{text} No cell is measured yet.", []
    turns = _range([cell["metrics"]["rounds"] for cell in cells])
    notes = [
        f"*Ours*: median and quartiles over {turns} turns of a row and Base, of the ratio within "
        "a turn. Row `base` is Base against a second Base: its distance from 1 is noise.",
        "The absolute embedding stays on beside a relative encoding.",
        "The paper has one row LRPE and does not say its type: its number stands beside each.",
        f"`{DASH}`: not in the paper, not measured, or the two do not go together.",
    ]
    return text, [*notes, *dict.fromkeys(_model(cell["config"]) for cell in cells)]


def _model(config: Mapping[str, Any]) -> str:
    return (
        f"Model: {config['layers']} layers of {config['width']} features, {config['heads']} "
        f"heads, feed-forward {config['ffn']}, a dictionary of {config['dictionary']:,}, "
        f"{config['dtype']}, no dropout; {config['batch']} sequences of {config['length']} "
        "tokens. The paper does not say its sizes here."
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
