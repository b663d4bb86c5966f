"""`python -m benchmarks`, which `make bench` and `make bench-gpu` call."""

import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.context import Context, add_options, check_device, context_of
from benchmarks.record import KEYS, Result, load_average, read_json
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_text
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
    import torch  # slow to import, as all below; --help stays fast

    from benchmarks.catalog import BENCHMARKS, check_names

    if args.list:
        print("\n".join(f"{name:13} {b.summary}" for name, b in BENCHMARKS.items()))
        return 0
    try:
        names = check_names(args.only, args.device)
        check_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    context = context_of(args, ("python", "-m", "benchmarks", *args.command_line))
    if load_average() > 0.5:
        context.say(f"the machine is busy, load average {load_average()}: ratios will scatter")
    failures = {}
    try:
        for number, name in enumerate(names, 1):
            context.say(f"[{number}/{len(names)}] {name}: {BENCHMARKS[name].summary}")
            if failure := measure(name, context, args.quick):
                failures[name] = failure
    except KeyboardInterrupt:
        return 130
    finally:
        context.say(f"written: {write_page(context)}")
    for name, failure in failures.items():
        print(f"{name}: {failure}", file=sys.stderr)
    return 1 if failures else 0


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
        found = asdict(benchmark.measure(settings, context))
        return {"benchmark": name, "device": context.name, "settings": settings, "found": found}

    path = context.results / context.name / f"{name}.json"
    try:
        if measure_once(path, KEYS, {"settings": settings}, work, context) is None:
            context.say("  done before")
    except Mismatch as error:
        return f"refused, nothing was timed: {error}"
    except Exception as error:  # the other benchmarks go on
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def write_page(context: Context) -> Path:
    """Render the page and the figure from all results."""
    from benchmarks.catalog import BENCHMARKS
    from benchmarks.page import draw_lengths, render

    folder = context.results / context.name
    read = ((name, read_json(folder / f"{name}.json", KEYS)) for name in BENCHMARKS)
    results = {name: result for name, result in read if result is not None}
    if "figure" in results:
        if is_installed("matplotlib"):
            draw_lengths(results["figure"], context.results / f"{context.name}-lengths.png")
        else:
            context.say("  the figure is not drawn: matplotlib is not installed")
    page = context.results / f"{context.name}.md"
    summaries = {name: benchmark.summary for name, benchmark in BENCHMARKS.items()}
    write_text(page, render(context.name, results, summaries))
    return page


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main(prepare=prepare_cpu))
