"""``fairseq-pe results``: all results as data, or one table's cells for a paper."""

import argparse
import csv
import io
import json
import sys

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.option_types import new_file
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, root_folder
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.papers import SCALE_NAMES, TABLES

DATA, CELLS = ("csv", "json"), ("markdown", "latex")
# The scale of a table's cells, if none is given: the first of these that has results.
PREFERRED = ("mini", "published", *(s for s in SCALE_NAMES if s not in ("mini", "published")))


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe results",
        description="Print results as one tidy table (csv or json: a line for each number of each "
        "run), or the cells of one table for a paper (markdown or latex: means over seeds with "
        "95 % intervals, n the number of seeds).",
    )
    text = "names of tables, as for `fairseq-pe table` (default: all)"
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=text)
    text = "scale (default: all; for markdown and latex mini, or published without mini)"
    parser.add_argument("--scale", choices=SCALE_NAMES, help=text)
    parser.add_argument("--study", metavar="NAME", help="name of a custom run")
    text = "format of the output (default: csv)"
    parser.add_argument("--format", choices=(*DATA, *CELLS), default="csv", help=text)
    parser.add_argument(
        "--output", type=new_file, metavar="FILE", help="file to write (default: standard output)"
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    for name in args.tables:
        if name not in TABLES:
            raise OptionError(
                f"TABLE must be one of {', '.join(TABLES)}, but is {name} instead."
                f"{did_you_mean(name, TABLES)}"
            )
    if args.format in CELLS and len(args.tables) != 1:
        raise OptionError(
            f"--format {args.format} needs one TABLE, but has {len(args.tables)} instead"
        )
    text = _as_data(args) if args.format in DATA else _as_cells(args)
    if not text:
        raise OptionError(
            "TABLE, --scale and --study must be those of a result, but are "
            f"{', '.join(args.tables) or 'any'}, {args.scale or 'any'} and {args.study or 'none'}"
        )
    if args.output is None:
        print(text, end="")
        return
    write_text(args.output, text)
    print(f"written: {args.output}")


def _as_data(args: argparse.Namespace) -> str:
    """Return every number of the chosen results as CSV or JSON; nothing without any."""
    # Only now: experiments take seconds to import.
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.records.tidy import COLUMNS, read_tidy

    tables = [TABLES[name] for name in dict.fromkeys(args.tables or TABLES)]
    rows = [
        row
        for row in read_tidy(
            ROOT / root_folder("results"),
            [(table, EXPERIMENTS[table.experiment].metrics) for table in tables],
            lambda text: print(f"left out: {text}", file=sys.stderr),
        )
        if args.scale in (None, row["scale"]) and args.study in (None, row["study"])
    ]
    if not rows:
        return ""
    if args.format == "json":
        return json.dumps(rows, indent=1) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _as_cells(args: argparse.Namespace) -> str:
    """Return the cells that the table's page shows, for a paper; nothing without any."""
    from fairseq_plugins.report.export import render_cells
    from fairseq_plugins.statistics.table_results import TableFolder, find_tables

    asked = args.study or args.scale
    folders = [
        found
        for found in find_tables(ROOT)
        if isinstance(found, TableFolder)
        and found.table.name == args.tables[0]
        and args.scale in (None, found.scale.name)
    ]
    for name in [asked] if asked else PREFERRED:
        for found in folders:
            if found.name == name and (shown := found.read()).shown:
                if asked is None:
                    print(f"--scale {name}", file=sys.stderr)
                return render_cells(shown, as_latex=args.format == "latex")
    return ""


main = command(get_parser, _run, quiet=True)
