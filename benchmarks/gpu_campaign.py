"""`scripts/gpu_campaign.sh`: the tests and measurements that need a GPU."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import ROOT
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import from_root


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="gpu_campaign.sh",
        description="Run the tests and measurements that need a GPU within a budget of minutes. A "
        "part that is done is skipped, a part that does not fit into the rest of the budget is not "
        "started, and a failed part does not stop the others.",
        epilog="A part with other sources, versions or hardware is run again. Exit status: 0 all "
        "done, 1 a part failed or is left, 2 nothing was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=40.0, metavar="N", help="the budget (default: 40)")
    add("--only", type=words("--only"), metavar="A,B", help="parts to run (default: all)")
    add("--list", action="store_true", help="list the parts with their minutes and do nothing")
    add("--dry-run", action="store_true", help="print the parts that would run, with commands")
    add("--quick", action="store_true", help="tiny sizes on a CPU, as a check")
    add("--force", action="store_true", help="repeat parts that are done")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of results, logs and states (default: outputs/gpu_campaign, with --quick "
        "outputs/gpu_campaign_quick); give the repository to store results as `make bench-gpu`",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = get_parser()
    args = parser.parse_args(arguments)
    if not args.minutes > 0:
        parser.error(f"`--minutes` must be above 0, but is {args.minutes:g}.")
    from benchmarks import campaign  # slow to import; --help stays fast
    from benchmarks.context import device_problem

    name = "gpu_campaign_quick" if args.quick else "gpu_campaign"
    output = (args.output or ROOT / "outputs" / name).resolve()
    # Relative if possible: results record the commands, and must not name this machine's folders.
    parts = campaign.parts(from_root(output), quick=args.quick, force=args.force)
    try:
        parts = campaign.select(parts, args.only)
    except ValueError as error:
        parser.error(str(error))
    session = campaign.Campaign(output, parts, args.minutes, quick=args.quick, force=args.force)
    if args.list or args.dry_run:
        session.list_parts() if args.list else session.announce()
        return 0
    if problem := None if args.quick else device_problem("gpu"):
        parser.error(problem)
    return session.run()


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main())
