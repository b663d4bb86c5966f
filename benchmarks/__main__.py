"""`python -m benchmarks`, which `make bench` and `make bench-gpu` call."""

import argparse
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from benchmarks.context import Context, add_options, context_of, prepare_process
from benchmarks.record import Result, load_average, read_result
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.exit_status import command
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


def run(args: argparse.Namespace) -> None:
    """Run the benchmarks and render their page.

    Raises:
        ValueError: an unknown benchmark, or there is no GPU.
        WorkError: a benchmark failed.
    """
    from benchmarks.catalog import BENCHMARKS, check_names  # slow to import; --help stays fast

    if args.list:
        print("\n".join(f"{name:13} {b.summary}" for name, b in BENCHMARKS.items()))
        return
    names = check_names(args.only, args.device, quick=args.quick)
    prepare_process(args.device)
    context = context_of(args)
    if load_average() > 0.5:
        context.say(f"the machine is busy, load average {load_average()}: ratios will scatter")
    failures = []
    try:
        for number, name in enumerate(names, 1):
            context.say(f"[{number}/{len(names)}] {name}: {BENCHMARKS[name].summary}")
            if failure := measure(name, context, args.quick):
                failures.append(f"{name}: {failure}")
    finally:
        context.say(f"written: {write_page(context)}")
    if failures:
        raise WorkError("\n".join(failures))


def measure(name: str, context: Context, quick: bool) -> str | None:
    """Run a benchmark unless its result is current; return the reason of a failure, or None."""
    import torch

    from benchmarks.catalog import BENCHMARKS
    from benchmarks.reference import Mismatch
    from benchmarks.runner import measure_once

    benchmark = BENCHMARKS[name]
    settings = benchmark.settings(context.name, quick)

    def work() -> Result:
        torch.manual_seed(0)
        return {"found": asdict(benchmark.measure(settings, context))}

    fields = {"benchmark": name, "device": context.name, "settings": settings}
    try:
        if measure_once(context.folder / f"{name}.json", fields, work, context) is None:
            context.say("  done before")
    except Mismatch as error:
        return f"refused, nothing was timed: {error}"
    except Exception as error:  # the other benchmarks go on
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def write_page(context: Context) -> Path:
    """Render the page and the figure from all results."""
    from benchmarks import page
    from benchmarks.catalog import BENCHMARKS

    read = ((name, read_result(context.folder / f"{name}.json", "found")) for name in BENCHMARKS)
    results = {name: result for name, result in read if result is not None}
    summaries = {name: benchmark.summary for name, benchmark in BENCHMARKS.items()}
    return page.write(context.results / f"{context.name}.md", results, summaries)


main = command(get_parser, run, quiet=True, if_stopped="Stopped; the same command goes on.")

if __name__ == "__main__":
    sys.exit(main())
