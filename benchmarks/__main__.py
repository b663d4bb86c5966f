"""`python -m benchmarks`, which `make bench` and `make bench-gpu` call."""

import logging
import sys
from collections.abc import Callable, Sequence

from benchmarks.context import add_options
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Measure speed and memory as ratios within one run, and write "
        "benchmarks/results/<machine>/<cpu|gpu>/<name>.json and the page <cpu|gpu>.md beside that "
        "folder.",
        epilog="Results with the same settings, sources, versions and hardware are kept. Exit "
        "status: 0 all done, 1 a result is wrong or a benchmark failed, 2 nothing was started, "
        "130 Ctrl-C.",
    )
    add = parser.add_argument
    add("--only", type=words("--only"), metavar="A,B", help="benchmarks to run (default: all)")
    add("--list", action="store_true", help="list the benchmarks and do nothing")
    add_options(parser, quick="tiny sizes, as a check")
    return parser


def main(arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None) -> int:
    """Run the command and return its exit status; `prepare` is called before measuring."""
    parser = get_parser()
    args = parser.parse_args(arguments)
    prepare()
    from benchmarks import session  # slow to import; --help stays fast

    return session.run(parser, args)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main(prepare=prepare_cpu))
