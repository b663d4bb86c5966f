"""`python -m benchmarks`, which `make bench` and `make bench-gpu` call."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from benchmarks.options import add_options
from fairseq_plugins.cli.table_options import words
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.parser import Parser


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Measures speed and memory as ratios, each in one run, and writes "
        "benchmarks/results/<machine>/<cpu|gpu>/<name>.json and the page <cpu|gpu>.md beside that "
        "folder.",
        epilog="What was measured with the same settings, sources and versions on this machine is "
        "skipped. Exit status: 0 all done, 1 a result is wrong or a benchmark failed, 2 nothing "
        "was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add("--only", type=words("--only"), metavar="A,B", help="these benchmarks (default: all)")
    add("--list", action="store_true", help="list the benchmarks and do nothing")
    add_options(parser, quick="tiny sizes, to see that everything works")
    return parser


def main(arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None) -> int:
    """Returns the exit status; `prepare` is called before anything is measured."""
    parser = get_parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(given)
    prepare()
    from benchmarks import session  # PyTorch: not for --help

    return session.run(parser, args, given)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main(prepare=prepare_cpu))
