"""`scripts/table9.sh`: the LRPE paper's Table 9."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.options import add_options, folder_name
from benchmarks.targets import ROWS
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.runner.interruption import hold_back_signals


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe table table9",
        description="LRPE, Table 9: speed of a training step of the bidirectional encoder relative "
        "to Base. Measures the cells that are not done and renders results/table9/<cpu|gpu>.md.",
        epilog="A cell with other settings, sources, versions or hardware is measured again. Exit "
        "status: 0 all done, 1 an attention is wrong, 2 nothing was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add(
        "--rows",
        type=words("--rows"),
        metavar="A,B",
        help=f"names of encodings, joined by + for several at once (default: {','.join(ROWS)})",
    )
    add(
        "--attention",
        type=words("--attention", ATTENTIONS),
        default=list(ATTENTIONS),
        metavar="A,B",
        help="linear, vanilla or both (default: both)",
    )
    add("--dry-run", action="store_true", help="print the cells that would be measured")
    add(
        "--name",
        type=folder_name("--name"),
        metavar="WORD",
        help="keep cells and page in results/table9/WORD, beside the published ones",
    )
    # Only inside Slurm jobs:
    add("--srun", action="store_true", help=argparse.SUPPRESS)
    add("--done", type=Path, help=argparse.SUPPRESS)  # file written at the end
    add_options(parser, quick="a tiny model, as a check")
    return parser


def main(arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None) -> int:
    """Run the command and return its exit status; `prepare` is called before measuring."""
    parser = get_parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(given)
    if args.srun:
        hold_back_signals()
    prepare()
    from benchmarks import table9_cells  # slow to import; --help stays fast

    return table9_cells.run(parser, args, given)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main(prepare=prepare_cpu))
