"""`fairseq-pe report`: the static site of all results."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, root_folder

OUTPUT = Path("site", "report")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the site; exit status 2 for a folder without results, or an output not its own."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if not (args.root / root_folder("results")).is_dir():
        parser.error(f"--root must hold a folder `results`, but is {args.root}")
    logging.disable(logging.INFO)  # of the libraries; this program prints
    # Here, since these import torch and fairseq, for which --help does not wait.
    from fairseq_plugins.site.build import build, check_output
    from fairseq_plugins.site.reading import read_evidence

    output = args.output or args.root / OUTPUT

    def work() -> None:
        check_output(output)  # before the seconds that reading takes
        build(read_evidence(args.root), output)

    return exit_status(args.program, work)


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe report",
        description="Makes a site of results/ and benchmarks/results/ that opens from a file: "
        "claims, tables with their runs, comparisons, encodings, figures, speed.",
    )
    add = parser.add_argument
    add("--root", type=Path, default=ROOT, metavar="DIR", help="the folder that holds results/")
    add("--output", type=Path, metavar="DIR", help=f"(default: {OUTPUT} in --root)")
    return parser
