"""``fairseq-pe results``: all results as data, or one table's cells for a paper."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, place
from fairseq_plugins.papers import SCALE_NAMES, TABLES

DATA, CELLS = ("csv", "json"), ("markdown", "latex")


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe results",
        description="Print results as one tidy table (csv or json: a line for each number of each "
        "run), or the cells of one table for a paper (markdown or latex: means over seeds with "
        "95 %% intervals, n the number of seeds).",
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="as `fairseq-pe table` takes it (default: all)"
    )
    parser.add_argument("--scale", choices=SCALE_NAMES, help="(default: all; for cells mini)")
    parser.add_argument("--study", metavar="NAME", help="runs with settings of their own")
    parser.add_argument("--format", choices=(*DATA, *CELLS), default="csv", help="(default: csv)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="(default: the terminal)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    args = get_parser().parse_args(argv)
    return exit_status("fairseq-pe results", lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    unknown = [name for name in args.tables if name not in TABLES]
    if unknown:
        raise OptionError(f"TABLE must be one of {', '.join(TABLES)}, but is {unknown[0]} instead")
    if args.format in CELLS and len(args.tables) != 1:
        raise OptionError(
            f"--format {args.format} needs one TABLE, but has {len(args.tables)} instead"
        )
    # Only now: experiments and pandas take seconds to import.
    import pandas as pd

    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.records.tidy import COLUMNS, read_tidy

    tables = [TABLES[name] for name in args.tables or TABLES]
    rows = read_tidy(
        ROOT / place("results"),
        [(table, EXPERIMENTS[table.experiment].metrics) for table in tables],
        lambda text: print(f"left out: {text}", file=sys.stderr),
    )
    scale = args.scale or ("mini" if args.format in CELLS and not args.study else None)
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    if scale:
        found = found[found["scale"] == scale]
    if args.study or args.format in CELLS:
        found = found[found["study"] == (args.study or "")]
    if found.empty:
        raise OptionError(f"no result has table {args.tables}, scale {scale}, study {args.study}")
    text = _as_data(found, args.format) if args.format in DATA else _as_cells(found, args)
    if args.output is None:
        print(text, end="")
        return
    from fairseq_plugins.common.files import writing

    with writing(args.output) as (file,):
        file.write(text.encode())


def _as_data(found: Any, kind: str) -> str:
    if kind == "csv":
        return str(found.to_csv(index=False))
    return str(found.to_json(orient="records", indent=1)) + "\n"


def _as_cells(found: Any, args: argparse.Namespace) -> str:
    """Means over seeds with 95 % intervals, a line for each row, a column for each cell."""
    from fairseq_plugins.statistics.inference import sample_mean

    (table,) = (TABLES[name] for name in args.tables)

    def cell(values: Any, digits: int) -> str:
        one = sample_mean(list(values))
        if one.low is None or one.high is None:
            return f"{one.effect:.{digits}f}"
        plus_minus = "$\\pm$" if args.format == "latex" else "±"
        return f"{one.effect:.{digits}f} {plus_minus} {(one.high - one.low) / 2:.{digits}f}"

    names = [row.name for row in table.rows]
    names += [name for name in found["row"].unique() if name not in names]
    attentions = [
        a for a in (*table.attentions, *table.extra_attentions) if a in set(found["attention"])
    ]
    columns = [(a, c) for a in attentions for c in table.columns]
    header = ["row", *(f"{a}: {c.label}" for a, c in columns), "n"]
    lines = []
    for name in names:
        own = found[found["row"] == name]
        if own.empty:
            continue
        cells = []
        for attention, column in columns:
            values = own[(own["attention"] == attention) & (own["metric"] == column.metric)]
            cells.append(cell(values["value"], column.digits) if len(values) else "-")
        seeds = own.groupby("attention")["seed"].nunique()
        lines.append([name, *cells, "/".join(str(seeds.get(a, 0)) for a in attentions)])
    if args.format == "markdown":
        from fairseq_plugins.common.tables import markdown_table

        return markdown_table(header, lines, left=1) + "\n"
    return _latex(header, lines)


def _latex(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A tabular of booktabs."""

    def escaped(text: str) -> str:
        return text.replace("_", "\\_").replace("%", "\\%").replace("&", "\\&")

    body = [
        "\\begin{tabular}{l" + "r" * (len(header) - 1) + "}",
        "\\toprule",
        " & ".join(map(escaped, header)) + " \\\\",
        "\\midrule",
        *(" & ".join([escaped(line[0]), *line[1:]]) + " \\\\" for line in lines),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(body) + "\n"
