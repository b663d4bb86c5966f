"""Export of a table's cells: means over seeds with 95 % intervals, as Markdown or LaTeX."""

from fairseq_plugins.common.tables import DASH, latex_table, markdown_table
from fairseq_plugins.statistics.inference import Seeds, sample_mean
from fairseq_plugins.statistics.table_results import TableResults


def render_cells(found: TableResults, *, as_latex: bool) -> str:
    """Make a table with a line for each row and a column for each attention and metric.

    The last column has the number of seeds under each attention. The last line (in LaTeX a comment)
    names the table and the scale and explains the numbers.

    as_latex: write a booktabs tabular instead of Markdown.
    """
    table, cells = found.table, found.judged.cells
    done = {attention for _, attention in cells}
    attentions = [a for a in (*table.attentions, *table.extra_attentions) if a in done]
    columns = [(attention, column) for attention in attentions for column in table.columns]
    header = ["row", *(f"{attention}: {column.label}" for attention, column in columns), "n"]
    lines = []
    for name in dict.fromkeys([*table.row_names, *(row for row, _ in cells)]):
        own = {a: cells[name, a] for a in attentions if (name, a) in cells}
        if own:
            numbers = [_number(own.get(a, {}).get(c.metric, {}), c.digits) for a, c in columns]
            seeds = (max(map(len, own.get(a, {}).values()), default=0) for a in attentions)
            lines.append([name, *numbers, "/".join(map(str, seeds))])
    kind = "study" if found.study else "scale"
    note = (
        f"{table.source}, {kind} {found.scale}: means over seeds ± their 95 % intervals; "
        f"n: seeds under {'/'.join(attentions)} attention."
    )
    if as_latex:
        return f"{latex_table(header, lines, left=1)}\n% {note} Needs \\usepackage{{booktabs}}.\n"
    return f"{markdown_table(header, lines, left=1)}\n\n{note}\n"


def _number(seeds: Seeds, digits: int) -> str:
    if not seeds:
        return DASH
    one = sample_mean([*seeds.values()])
    if one.low is None or one.high is None:
        return f"{one.effect:z.{digits}f}"
    return f"{one.effect:z.{digits}f} ± {(one.high - one.low) / 2:.{digits}f}"
