"""Views of encodings: definition, pictures, and numbers in every table."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from markupsafe import Markup

from fairseq_plugins.analysis import picture
from fairseq_plugins.catalog.facts import Facts, describe
from fairseq_plugins.catalog.page import definition
from fairseq_plugins.catalog.text import word
from fairseq_plugins.encodings import ENCODINGS, EncodingEntry
from fairseq_plugins.site import charts
from fairseq_plugins.site.formula import mathml
from fairseq_plugins.site.kinds import facts_of, kind_of
from fairseq_plugins.site.markdown import inline
from fairseq_plugins.site.speed import Ratio, table9
from fairseq_plugins.site.tables import SiteLine
from fairseq_plugins.statistics.series import length_lines
from fairseq_plugins.statistics.table_results import Evidence, TableResults

BESIDE = ("base", "rope")  # rows shown beside an encoding in extrapolation charts


@dataclass(frozen=True)
class EncodingView:
    """An encoding of the registry."""

    entry: EncodingEntry
    kind: str
    formula: Markup  # "" for combinations
    about: Facts
    facts: Sequence[tuple[str, Markup]]  # properties by label
    options: Sequence[tuple[str, str, str]]  # name, default and valid values
    text: str  # definition in Markdown
    numbers: Sequence[tuple[TableResults, SiteLine]]
    speeds: Sequence[tuple[str, str, str, str]]  # device, attention, ratio to Base, quartiles
    pictures: Sequence[tuple[str, charts.Chart]]
    extrapolation: Sequence[tuple[str, charts.Chart]]  # perplexity beyond the training length

    @property
    def page(self) -> str:
        return encoding_page(self.entry.name)


def encoding_page(name: str) -> str:
    """Return the name of an encoding's page."""
    return f"encoding-{name}.html"


def look(name: str) -> list[tuple[str, charts.Chart]]:
    """Make charts of an untrained encoding, as `analyse picture` does."""
    torch.set_num_threads(1)
    seen = picture.observe(name, picture.build(name), length=picture.LENGTH)
    found = []
    for panel in seen.definition:
        if panel.kind == "lines":
            found.append((panel.title, _of_heads(panel.x, panel.values, y="")))
        else:
            found.append((panel.title, charts.heat(panel.values.tolist(), x="", y="")))
    kernel = _of_heads(seen.offsets, seen.kernel, y="mean logit")
    found.append(("kernel: mean logit of a query and a key of the same word", kernel))
    weights = charts.heat(seen.weights.tolist(), x="key", y="query", signed=False)
    found.append(("attention over a repeated word", weights))
    return found


def _of_heads(offsets: Sequence[int], values: torch.Tensor, *, y: str) -> charts.Chart:
    rows = enumerate(values.tolist(), 1)
    heads = {f"head {i}": list(zip(offsets, row, strict=True)) for i, row in rows}
    return charts.lines(heads, x="t - s", y=y)


def encoding_views(
    evidence: Evidence,
    lines: Mapping[str, Sequence[SiteLine]],
    looks: Mapping[str, Sequence[tuple[str, charts.Chart]]],
) -> list[EncodingView]:
    """Make the views of all encodings, sorted by name.

    lines: by page of a table. looks: results of `look` by name.
    """
    speeds = table9(evidence)
    return [_view(evidence, lines, name, looks.get(name, ()), speeds) for name in sorted(ENCODINGS)]


def _view(
    evidence: Evidence,
    lines: Mapping[str, Sequence[SiteLine]],
    name: str,
    pictures: Sequence[tuple[str, charts.Chart]],
    speeds: Mapping[str, Sequence[Ratio]],
) -> EncodingView:
    entry = ENCODINGS[name]
    numbers = [
        (found, line)
        for found in evidence.tables
        for line in lines[found.page]
        if line.encoding == name and (line.page or any(n.paper for n in line.numbers.values()))
    ]
    return EncodingView(
        entry=entry,
        kind=kind_of(name),
        formula=Markup("") if entry.parts else mathml(entry.formula),
        about=facts_of(name),
        facts=[(label, inline(text)) for label, text in describe(facts_of(name))],
        options=[(o.name, word(o.default), o.expected) for o in entry.options.values()],
        text="" if entry.parts else "\n\n".join(definition(inspect.getdoc(entry.make) or "")),
        numbers=numbers,
        speeds=[
            (device, one.group, f"{one.value:.3f}", one.quartiles)
            for device, steps in speeds.items()
            for one in steps
            if one.row == name and one.value is not None
        ],
        pictures=pictures,
        extrapolation=_extrapolation(evidence, name),
    )


def _extrapolation(evidence: Evidence, name: str) -> list[tuple[str, charts.Chart]]:
    """Make charts of perplexity by length, with Base and RoPE, from every extrapolation table."""
    found = []
    for one in evidence.tables:
        if not (one.table.lengths and one.shown):
            continue
        by_length = length_lines(one.shown)
        for attention in one.table.attentions:
            if (name, attention) not in by_length:
                continue
            rows = [name, *(row for row in BESIDE if row != name)]
            series = {
                one.table.row(row).label: by_length[row, attention]
                for row in rows
                if (row, attention) in by_length
            }
            words = {"x": "length of the window, in training lengths", "y": "perplexity"}
            chart = charts.lines(series, log_x=True, log_y=True, **words)
            found.append((f"{one.table.source}, {one.scale}, {attention} attention", chart))
    return found
