"""The section on trivial baselines (majority class, unigrams, ...) and the rows above them."""

from statistics import fmean

from fairseq_plugins.common.pages import Section
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.tables import Column
from fairseq_plugins.statistics.inference import SIGNIFICANT, holm, p_above_baseline
from fairseq_plugins.statistics.judged import JudgedTable, best_baseline


def _over_examples(judged: JudgedTable, attention: str) -> str:
    """Tabulate how many rows beat each baseline by a test over examples; "" without rows."""
    examples, baselines = judged.examples, judged.baselines
    columns = [c for c in judged.table.columns if c.metric in examples and c.metric in baselines]
    rows = {column.metric: judged.rows(attention, column.metric) for column in columns}
    names = dict.fromkeys(name for column in columns for name in baselines[column.metric])
    p_values = {
        (name, metric, row): p_above_baseline(fmean(seeds.values()), examples[metric], value)
        for name in names
        for metric, found in rows.items()
        if (value := baselines[metric].get(name)) is not None
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
        [f"{attention}: rows that beat", *(column.label for column in columns)], lines, left=1
    )


def _margin(judged: JudgedTable, attention: str, column: Column) -> str:
    """Format how much better the best row's mean is than the best baseline."""
    baseline, rows = best_baseline(column, judged.baselines), judged.rows(attention, column.metric)
    if baseline is None or not rows:
        return DASH
    sign = 1 if column.higher_is_better else -1
    by = max(sign * (fmean(seeds.values()) - baseline[1]) for seeds in rows.values())
    return f"{by:+z.{column.digits}f}"


def baselines_section(judged: JudgedTable) -> list[Section]:
    """Return the section on baselines; [] if the data has none."""
    table, baselines = judged.table, judged.baselines
    if not baselines:
        return []
    columns = [column for column in table.columns if column.metric in baselines]
    names = dict.fromkeys(name for column in columns for name in baselines[column.metric])
    lines = [
        [
            name,
            *(
                f"{baselines[c.metric][name]:.{c.digits}f}" if name in baselines[c.metric] else DASH
                for c in columns
            ),
        ]
        for name in names
    ]
    lines += [
        [
            f"lead of the best row under {table.name_of(attention)}",
            *(_margin(judged, attention, column) for column in columns),
        ]
        for attention in table.attentions
        if any(judged.rows(attention, column.metric) for column in columns)
    ]
    notes = [
        f"**{table.name_of(attention).capitalize()}**: {'; '.join(lost)}."
        for attention in table.attentions
        if (lost := [t for c in columns if (t := judged.no_row_above_baseline(attention, c))])
    ]
    summary = (
        "Scores without a model, from statistics of the training data, on the examples that the "
        "rows are scored on; the last lines say by how much the best row is better."
    )
    page = markdown_table(["", *(column.label for column in columns)], lines, left=1)
    counted = [_over_examples(judged, a) for a in table.attentions]
    if any(counted):
        notes += [
            "Number of rows that beat a baseline in an exact binomial test over the examples "
            "(one-sided, p < 0.05 after Holm's correction over all tests under an attention; a row "
            "with several seeds counts with its mean). The test takes the baseline's score as "
            "exact, though it is measured on the same examples, and leaves out how seeds vary, so "
            "that it may count too many rows.",
            *filter(None, counted),
        ]
    return [Section("Trivial baselines", [summary, page, *notes])]
