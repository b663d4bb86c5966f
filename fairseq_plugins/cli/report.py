"""`fairseq-pe report`: the static site of all results."""

import argparse
from pathlib import Path

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, root_folder

OUTPUT = Path("site", "report")


def _run(args: argparse.Namespace) -> None:
    if not (args.root / root_folder("results")).is_dir():
        raise OptionError(f"--root must hold a folder `results`, but is {args.root}")
    # Here, since these import torch and fairseq, for which --help does not wait.
    from fairseq_plugins.site.build import build, check_output
    from fairseq_plugins.site.reading import read_evidence

    output = args.output or args.root / OUTPUT
    check_output(output)  # before the seconds that reading takes
    build(read_evidence(args.root), output)


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe report",
        description="Make a site of results/ and benchmarks/results/ that opens from a file: "
        "claims, tables with their runs, comparisons, encodings, figures, speed.",
    )
    add = parser.add_argument
    text = "folder with results/ (default: the repository)"
    add("--root", type=Path, default=ROOT, metavar="DIR", help=text)
    text = f"folder of the site (default: {OUTPUT} in --root)"
    add("--output", type=Path, metavar="DIR", help=text)
    return parser


main = command(get_parser, _run, quiet=True)
