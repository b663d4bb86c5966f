"""The page of Table 9: the paper's numbers and ours, then the targets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import TABLE_9, explain_missed, origin, spread
from benchmarks.record import Result, read_result
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_text, writing
from fairseq_plugins.common.pages import Page, Section, bullets, provenance_section, site_link
from fairseq_plugins.common.pictures import save_png
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.lrpe_speed import LABELS, LRPE, SPEEDS
from fairseq_plugins.papers.tables import ATTENTIONS

ROWS = ("base", "rope", "spe", "per", "t5", "alibi", *LRPE, "xl", "none")
Cells = Mapping[tuple[str, str], Result]  # by row and attention


def read_cells(folder: Path) -> dict[tuple[str, str], Result]:
    """Read all complete cells, by file name."""
    read = (read_result(path, "metrics") for path in sorted(folder.glob("*.json")))
    return {(cell["row"], cell["attention"]): cell for cell in read if cell is not None}


def all_rows(cells: Cells) -> list[str]:
    """List the paper's rows, then other measured ones."""
    return [*ROWS, *sorted({row for row, _ in cells} - {*ROWS})]


def write_page(folder: Path) -> None:
    """Render results/table9/<cpu|gpu>.md and .png from the cells in that folder."""
    cells = read_cells(folder)
    write_text(folder.with_name(f"{folder.name}.md"), render(folder.name, cells))
    if cells and is_installed("matplotlib"):
        draw(cells, folder.with_name(f"{folder.name}.png"))


def render(scale: str, cells: Cells) -> str:
    """Render the Markdown page."""
    measured, aimed, missed = [], [], []
    for row in all_rows(cells):
        label = f"{LABELS[row]} (`{row}`)" if row in LABELS else f"`{row}`"
        columns = [_columns(row, attention, cells) for attention in ATTENTIONS]
        measured.append([label, *(text for found, _ in columns for text in found)])
        if any(targets[0] != DASH for _, targets in columns):
            aimed.append([label, *(text for _, targets in columns for text in targets)])
        for attention, (_, (_, ours, verdict)) in zip(ATTENTIONS, columns, strict=True):
            if verdict == "missed":
                missed.append((TABLE_9[f"{row} {attention}"], ours))

    def table(words: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        header = ["Method"]
        for attention in ATTENTIONS:
            header += [f"{attention.capitalize()}: {words[0]}", *words[1:]]
        return markdown_table(header, lines, left=1)

    sections = []
    if cells and is_installed("matplotlib"):
        about = "Dot: ours with its quartiles; diamond: the paper's; red: this project's target."
        sections.append(Section("Figure", [f"![Speeds against Base]({scale}.png)", about]))
    about = "Targets are what a row's arithmetic allows; they are met or missed by the median."
    page = table(("target", "ours", "verdict"), aimed)
    reasons = explain_missed(scale, missed)
    sections.append(Section("Targets of this project", [about, page, *reasons], is_folded=True))
    if cells:
        sections.append(provenance_section(origin([*cells.values()]), site_link("speed.html")))
    caption, notes = describe(cells)
    result = [table(("paper", "ours", "quartiles"), measured), bullets(notes)]
    return Page(f"LRPE, Table 9, on a {scale.upper()}", caption, result, sections).markdown()


def _columns(row: str, attention: str, cells: Cells) -> tuple[list[str], list[str]]:
    """Return paper, ours and quartiles; and target, ours and verdict."""
    paper, target = SPEEDS[attention].get(row), TABLE_9.get(f"{row} {attention}")
    published, bound = f"{paper:.2f}" if paper else DASH, target.bound_text if target else DASH
    if (row, attention) not in cells:
        return [published, DASH, DASH], [bound, DASH, DASH]
    metrics = cells[row, attention]["metrics"]
    speed, ours = metrics["relative_speed"], f"{metrics['relative_speed']:.3f}"
    verdict = target.verdict(speed) if target else DASH
    return [published, ours, spread(metrics["quartiles"])], [bound, ours, verdict]


def draw(cells: Cells, path: Path) -> None:
    """Draw a PNG with a panel for each attention: ours with quartiles, paper and target."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 5), layout="constrained")
    panels = picture.subplots(1, len(ATTENTIONS), squeeze=False)[0]
    for panel, attention in zip(panels, ATTENTIONS, strict=True):
        rows = [row for row in all_rows(cells) if (row, attention) in cells]
        for y, row in enumerate(rows):
            metrics = cells[row, attention]["metrics"]
            panel.plot(metrics["quartiles"], [y, y], color="tab:blue", linewidth=2)
            panel.plot(metrics["relative_speed"], y, "o", color="tab:blue")
            if paper := SPEEDS[attention].get(row):
                panel.plot(paper, y, "D", color="grey", markerfacecolor="none")
            if target := TABLE_9.get(f"{row} {attention}"):
                panel.plot(target.bound, y, "|", color="tab:red", markersize=14)
        panel.set_yticks(range(len(rows)), [LABELS.get(row, row) for row in rows], fontsize=8)
        panel.invert_yaxis()
        panel.axvline(1.0, color="black", linewidth=0.8)
        panel.set(title=f"{attention} attention", xlabel="speed against Base")
        panel.grid(axis="x", alpha=0.3)
    picture.suptitle("dot: ours with its quartiles; diamond: the paper's; red: target")
    with writing(path) as (file,):
        save_png(picture, file)


def describe(cells: Cells) -> tuple[str, list[str]]:
    """Return the page's caption, and its notes."""
    text = (
        "Speed of a whole training step (forward, backward, update by Adam) of the bidirectional "
        "encoder with a masked language model's loss, relative to Base under the same attention: "
        "above 1 is faster than Base."
    )
    if not cells:
        return f"{text} No cell is measured yet.", []
    rounds = [cell["metrics"]["rounds"] for cell in cells.values()]
    turns = " to ".join(map(str, dict.fromkeys((min(rounds), max(rounds)))))
    notes = [
        f"*Ours*: a row and Base take {turns} turns; median and quartiles of the ratio within a "
        "turn. Row `base` is Base against a second Base: its distance from 1 is noise.",
        "Rows with a relative encoding, except `alibi`, also have the absolute embedding of Base.",
        "The paper has one row LRPE, of an unstated type; its number is shown for each type.",
        f"`{DASH}`: not in the paper, not measured, or not supported by the attention.",
    ]
    return text, [*notes, *dict.fromkeys(_model(cell["config"]) for cell in cells.values())]


def _model(config: Mapping[str, Any]) -> str:
    # Older results do not name their normalizer.
    normalizer = config.get("linear_normalizer", "encoded")
    return (
        f"Model: {config['layers']} layers of {config['width']} features, {config['heads']} "
        f"heads, feed-forward {config['ffn']}, a dictionary of {config['dictionary']:,}, "
        f"{config['dtype']}, no dropout; {config['batch']} sequences of {config['length']} "
        f"tokens; denominators of linear attention {normalizer}. The paper does not state its "
        "sizes."
    )
