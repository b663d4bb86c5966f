"""Correlations of attention's properties with performance: the BERT paper's Table 5."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_statistics
from fairseq_plugins.common.pages import (
    Page,
    Section,
    bullets,
    figure_section,
    provenance_section,
    site_link,
)
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.bert_correlations import (
    PERFORMANCES,
    PRINTED,
    PROPERTIES,
    ROWS,
    SOURCE,
    WITHOUT,
)
from fairseq_plugins.papers.tables import MARK, Column
from fairseq_plugins.report.differences import interval
from fairseq_plugins.report.lines import Number
from fairseq_plugins.statistics.claims import all_printed
from fairseq_plugins.statistics.comparisons import rows_of
from fairseq_plugins.statistics.correlations import (
    ATTENTION,
    LEAST_ROWS,
    RATIO,
    Correlated,
    MetricPair,
    correlate,
    of_fine_tuned,
    over_rows,
    start_similarity,
)
from fairseq_plugins.statistics.scale_results import ScaleResults

PAGE = "bert_table5"
DIGITS = 2

Grid = Sequence[tuple[str, Column, Sequence[Number]]]  # by performance: table, and a number each


@functools.cache
def of_the_paper() -> dict[MetricPair, Correlated]:
    """Return the correlations of the paper's own Tables 2 to 4."""
    return correlate(all_printed(), scale="")


def grid(found: Mapping[MetricPair, Correlated]) -> Grid:
    """Return a line for each performance, with a number for each property."""
    return [
        (table, column, [_number(own, column, found) for own in PROPERTIES])
        for table, column in PERFORMANCES
    ]


def _number(own: Column, column: Column, found: Mapping[MetricPair, Correlated]) -> Number:
    printed = PRINTED[own.metric].get(column.metric)
    estimate = found[own.metric, column.metric].estimate
    return Number(
        paper=f"{printed.mean:+.{DIGITS}f}" if printed else "",
        paper_order=printed.mean if printed else None,
        ours=f"{estimate.effect:+z.{DIGITS}f}" if estimate else "",
        order=estimate.effect if estimate else None,
        sure=interval(estimate, DIGITS) if estimate else "",
        mark=estimate is not None and estimate.is_significant,
    )


@dataclass(frozen=True, eq=False)
class Correlations:
    """Table 5 at a scale, as its page and the site show it."""

    scale: str
    numbers: ScaleResults
    source: ClassVar[str] = SOURCE
    heading_held: ClassVar[str] = "With similarity to the published model held constant"
    about_held: ClassVar[str] = (
        "Partial correlations with their 95 % intervals, which control for the cosine between a "
        "row and the published model (on the page of the task's table), without Holm's correction."
    )

    @property
    def ours(self) -> Mapping[MetricPair, Correlated]:
        return self.numbers.correlations

    @property
    def page(self) -> str:
        return f"{PAGE}-{self.scale}.html"

    @property
    def grid(self) -> Grid:
        return grid(self.ours)

    @functools.cached_property
    def held(self) -> Grid:
        """The same with similarity to the published model held constant; empty without any."""
        found = grid(correlate(self.numbers.cells, self.scale, hold_similarity=True))
        return found if any(number.ours for *_, numbers in found for number in numbers) else ()

    @property
    def lost(self) -> dict[str, str]:
        """The tasks whose best baseline no row beats: a sentence by metric."""
        found = {
            column.metric: self.numbers.table(name).no_row_above_baseline(ATTENTION, column)
            for name, column in PERFORMANCES
        }
        return {metric: why for metric, why in found.items() if why}

    def write(self, root: Path) -> Path:
        """Write bert_table5/<scale>.md, .json and .png; return the page's path below `root`."""
        page = root_folder("results") / PAGE / f"{self.scale}.md"
        self.render().write(root / page)
        write_statistics(root / page.with_suffix(".json"), self.as_data())
        if is_installed("matplotlib"):
            from fairseq_plugins.report.correlations_figure import draw_correlations

            draw_correlations(root / page.with_suffix(""), self.scale, self.grid)
        return page

    def as_data(self) -> dict[str, Any]:
        again = grid(of_the_paper())
        return {
            "what": "Pearson correlations over rows between a property and a performance",
            "scale": self.scale,
            "correlations": [
                {
                    "property": own.metric,
                    "performance": column.metric,
                    "table": table,
                    "printed": number.paper_order,
                    "from_printed_tables": number.order,
                    "rows": list(found.rows),
                    "ours": None if found.estimate is None else found.estimate.as_data(),
                }
                for i, own in enumerate(PROPERTIES)
                for table, column, numbers in again
                for number, found in [(numbers[i], self.ours[own.metric, column.metric])]
            ],
        }

    def render(self) -> Page:
        """Make the page."""

        def table(found: Grid, text: Callable[[Number], str]) -> str:
            lines = [[column.label, *map(text, numbers)] for _, column, numbers in found]
            return markdown_table(["", *(column.label for column in PROPERTIES)], lines, left=1)

        def both(number: Number) -> str:
            return f"{number.paper or DASH} / {number.ours or DASH}{MARK if number.mark else ''}"

        ours, theirs, scale = self.grid, grid(of_the_paper()), self.scale
        caption = (
            "Pearson correlations over rows, the paper's / ours, between how much a row's "
            "attention violates a property (for direction balance, the ratio itself) and the row's "
            "score on a task. Negative: rows that violate the property more score worse."
        )
        again = (
            "The same computation from the rounded numbers of the paper's own Tables 2 to 4, for "
            "every column. Where the paper's Table 5 has a number, the two differ by at most "
            f"{_largest_difference(theirs):.2f}."
        )
        about = (
            "95 % intervals by Fisher's transformation. They take the rows as independent, though "
            "some share an embedding; how seeds vary counts only as noise between rows."
        )
        sections = [
            Section("Intervals of our correlations", [about, table(ours, lambda n: n.sure or DASH)])
        ]
        if self.held:
            held = table(self.held, lambda n: f"{n.ours} ({n.sure})" if n.sure else DASH)
            sections.append(Section(self.heading_held, [self.about_held, held]))
        sections += [figure_section(SOURCE, scale)] if is_installed("matplotlib") else []
        printed = [again, table(theirs, lambda n: n.ours or DASH)]
        sections += [
            Section("From the paper's own tables", printed),
            provenance_section(
                f"From the runs of [Table 2](../bert_table2/{scale}.md) (properties), "
                f"[Table 3](../bert_table3/{scale}.md) and [Table 4](../bert_table4/{scale}.md) "
                "(performances).",
                site_link(self.page),
            ),
        ]
        result = [table(ours, both), "**Notes**", bullets(self.notes)]
        return Page(f"{SOURCE}, scale `{scale}`", caption, result, sections)

    @property
    def notes(self) -> list[str]:
        """Sentences on the rows, marks and missing numbers of the correlations."""
        sizes = sorted({len(one.rows) for one in self.ours.values() if one.estimate}) or [0]
        counts = str(sizes[-1]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        missing = [row for row in ROWS if not any(row in one.rows for one in self.ours.values())]
        notes = [
            f"Each correlation is over the embeddings that have results: {counts} of the paper's "
            f"{len(ROWS)}. As in the paper, `{WITHOUT}` is left out: it is such an outlier that it "
            "would make any correlation large.",
            "Properties are means over the seeds, each of whose models was fine-tuned."
            if self.scale == PUBLISHED
            else "Properties are those of seed 1, whose model all seeds fine-tuned.",
        ]
        if missing:
            notes.append(f"Without results: {', '.join(f'`{row}`' for row in missing)}.")
        estimates = {pair: one.estimate for pair, one in self.ours.items() if one.estimate}
        notes += [
            "The paper does not say whether SQuAD is scored by F1 or by exact match (EM); its "
            "numbers follow from exact match.",
            f"`{DASH}`: not in the paper; or here fewer than {LEAST_ROWS} rows, or one of the two "
            f"quantities is the same in all rows. {MARK}: differs from 0, p < 0.05 after Holm's "
            f"correction over all {len(estimates)} correlations.",
        ]
        kept = [
            printed[performance].mean * one.effect > 0
            for (own, performance), one in estimates.items()
            if performance in (printed := PRINTED[own])
        ]
        if kept:
            notes.append(
                f"Of the {len(kept)} correlations in the paper and here, "
                f"{sum(kept)} have the paper's sign, which says little where an interval "
                "includes 0."
            )
        notes += filter(None, (_as_distance(self.numbers), _with_similarity(self.numbers)))
        if lost := self.lost:
            notes.append(
                "A task on which no row beats the trivial baselines does not tell rows apart, and "
                f"a correlation with it means nothing: {'; '.join(lost.values())}."
            )
        return notes


def _as_distance(numbers: ScaleResults) -> str:
    """Describe correlations with the distance of direction balance from 1; "" if none is below."""
    own = rows_of(numbers.cells.get("bert_table2", {}), ATTENTION, RATIO)
    ratios = [
        one for row in ROWS if (one := of_fine_tuned(own.get(row, {}), numbers.scale)) is not None
    ]
    below = sum(ratio < 1 for ratio in ratios)
    if not below:
        return ""
    correlations = _with_performances(
        numbers, lambda table: ("bert_table2", RATIO), lambda ratio: abs(ratio - 1)
    )
    if not correlations:
        return ""
    return (
        "Attention is balanced where direction balance is 1, and the paper speaks of violating it; "
        "but its numbers are of the ratio itself: all of its rows are above 1, where a larger "
        f"ratio is a larger violation. Here {below} of {len(ratios)} rows are below 1. With the "
        "distance from 1 in place of the ratio the correlations, without Holm's correction, are "
        f"{correlations}."
    )


def _with_similarity(numbers: ScaleResults) -> str:
    """Describe correlations with the similarity to the published model; "" if there is none."""
    found = _with_performances(numbers, start_similarity, float)
    if not found:
        return ""
    return (
        "A row's similarity to the published model before fine-tuning (the cosine on the pages of "
        f"Tables 3 and 4) correlates too, without Holm's correction: {found}. A more similar "
        "row has more of that model's properties, so a correlation with a property may come from "
        "this similarity alone: a section below holds it constant."
    )


def _with_performances(
    numbers: ScaleResults, of: Callable[[str], MetricPair], change: Callable[[float], float]
) -> str:
    """List correlations with the performances that the paper has of direction balance.

    of: returns table and metric for the table of a performance. change: of its values.
    """
    found = {
        column.label: over_rows(
            numbers.cells, of(table), (table, column.metric), ATTENTION, ROWS, numbers.scale, change
        ).estimate
        for table, column in PERFORMANCES
        if column.metric in PRINTED[RATIO]
    }
    return ", ".join(
        f"{label} {one.effect:+z.{DIGITS}f} ({interval(one, DIGITS)})"
        for label, one in found.items()
        if one is not None
    )


def _largest_difference(theirs: Grid) -> float:
    """Return the largest difference between Table 5 and correlations of the paper's tables."""
    return max(
        abs(number.order - number.paper_order)
        for _, _, numbers in theirs
        for number in numbers
        if number.order is not None and number.paper_order is not None
    )
