"""`scripts/gpu_campaign.sh`: all that should be measured whenever a GPU is at hand."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import ROOT
from fairseq_plugins.cli.table_options import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import from_root


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="gpu_campaign.sh",
        description="The tests and measurements that need a GPU, one after the other within a "
        "budget of minutes. A part that is done is skipped, one that would not fit into what is "
        "left of the budget is not begun, one that fails does not stop the others.",
        epilog="A part of other sources, versions or another machine is done again. Exit status: 0 "
        "all done, 1 a part failed or is left, 2 nothing was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=40.0, metavar="N", help="the budget (default: 40)")
    add("--only", type=words("--only"), metavar="A,B", help="these parts (default: all)")
    add("--list", action="store_true", help="list the parts with their minutes and do nothing")
    add("--dry-run", action="store_true", help="say what would be done, with which commands")
    add("--quick", action="store_true", help="tiny sizes on a CPU, to see that it works")
    add("--force", action="store_true", help="do again what is done")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="where results, logs and states go (default: outputs/gpu_campaign, with --quick "
        "outputs/gpu_campaign_quick); the repository itself takes results as `make bench-gpu` does",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = get_parser()
    args = parser.parse_args(arguments)
    if not args.minutes > 0:
        parser.error(f"`--minutes` must be above 0, but is {args.minutes:g}.")
    from benchmarks import campaign, campaign_parts  # PyTorch: not for --help

    name = "gpu_campaign_quick" if args.quick else "gpu_campaign"
    output = (args.output or ROOT / "outputs" / name).resolve()
    # Relative where it can be: the commands go into results, which say nothing of this machine.
    shown = from_root(output)
    parts = campaign_parts.parts(shown, quick=args.quick, force=args.force)
    try:
        parts = campaign.select(parts, args.only)
    except ValueError as error:
        parser.error(str(error))
    session = campaign.Campaign(output, parts, args.minutes, quick=args.quick, force=args.force)
    if args.list:
        session.list_parts()
        return 0
    if args.dry_run:
        session.announce()
        return 0
    if problem := session.problem():
        parser.error(problem)
    return session.run()


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main())
