"""What needs no model of ours, and whether any row is better than it."""

from collections.abc import Mapping

from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.statistics.comparisons import Cells, mean, rows_of
from fairseq_plugins.statistics.floors import Floors, highest, none_rises
from fairseq_plugins.statistics.inference import SIGNIFICANT, holm, p_of_share


def _over_examples(
    table: Table, attention: str, cells: Cells, floors: Floors, examples: Mapping[str, int]
) -> str:
    """How many rows are better than each floor, were other examples drawn; empty without rows."""
    columns = [c for c in table.columns if c.metric in examples and c.metric in floors]
    rows = {column.metric: rows_of(cells, attention, column.metric) for column in columns}
    names = dict.fromkeys(name for column in columns for name in floors[column.metric])
    p_values = {
        (name, metric, row): p_of_share(mean(seeds.values()), examples[metric], value)
        for name in names
        for metric, found in rows.items()
        if (value := floors[metric].get(name)) is not None
        for row, seeds in found.items()
    }
    if not p_values:
        return ""
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))

    def cell(name: str, metric: str) -> str:
        found = [p for (n, m, _), p in adjusted.items() if (n, m) == (name, metric)]
        return f"{sum(p < SIGNIFICANT for p in found)} of {len(found)}" if found else DASH

    lines = [[name, *(cell(name, column.metric) for column in columns)] for name in names]
    return markdown_table(
        [f"{attention}: rows better than", *(column.label for column in columns)], lines, left=1
    )


def _margin(cells: Cells, attention: str, column: Column, floors: Floors) -> str:
    """By how much the best row's mean is better than the best floor."""
    floor, rows = highest(column, floors), rows_of(cells, attention, column.metric)
    if floor is None or not rows:
        return DASH
    sign = 1 if column.higher_is_better else -1
    by = max(sign * (mean(seeds.values()) - floor[1]) for seeds in rows.values())
    return f"{by:+.{column.digits}f}"


def floors_section(
    table: Table, cells: Cells, floors: Floors, examples: Mapping[str, int]
) -> list[str]:
    """The section on floors; empty where the data says none.

    examples: by metric, where it is a share of them.
    """
    if not floors:
        return []
    columns = [column for column in table.columns if column.metric in floors]
    names = dict.fromkeys(name for column in columns for name in floors[column.metric])
    lines = [
        [
            name,
            *(
                f"{floors[c.metric][name]:.{c.digits}f}" if name in floors[c.metric] else DASH
                for c in columns
            ),
        ]
        for name in names
    ]
    lines += [
        [
            f"best row under {table.name_of(attention)}, better by",
            *(_margin(cells, attention, column, floors) for column in columns),
        ]
        for attention in table.attentions
        if any(rows_of(cells, attention, column.metric) for column in columns)
    ]
    told = [
        f"**{table.name_of(attention).capitalize()}**: {'; '.join(said)}."
        for attention in table.attentions
        if (said := [t for c in columns if (t := none_rises(table, cells, attention, c, floors))])
    ]
    summary = "On the same examples, from the training data alone and without any model of ours."
    page = markdown_table(["", *(column.label for column in columns)], lines, left=1)
    counted = [_over_examples(table, a, cells, floors, examples) for a in table.attentions]
    if any(counted):
        told += [
            "Were other examples drawn: the rows that are better than a floor by an exact binomial "
            "test against its number (one-sided, p < 0.05 with Holm's correction over all of an "
            "attention; several seeds count by their mean). It counts the floor's number as known, "
            "though that is measured on the same examples, so it is generous; and it says nothing "
            "of other seeds.",
            *filter(None, counted),
        ]
    return ["## Floors", summary, page, *told]
