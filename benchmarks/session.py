"""The runner of benchmarks, and the page of their results."""

import argparse
import functools
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.catalog import BENCHMARKS, check_names
from benchmarks.context import Context, check_device, context_of
from benchmarks.page import draw_lengths, render
from benchmarks.record import KEYS, circumstances, is_current, load_average, measured, read_json
from benchmarks.reference import Mismatch
from benchmarks.timing import quick_collections
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.common.parser import Parser


def measure(name: str, context: Context, quick: bool) -> str | None:
    """Run a benchmark unless its result is current; return the reason of a failure, or None."""
    settings = BENCHMARKS[name].settings(context.name, quick)
    path = context.results / context.name / f"{name}.json"
    existing = None if context.force else read_json(path, KEYS)
    expected = {"settings": settings, **circumstances(context.gpus)}
    if existing is not None and is_current(existing, expected):
        context.say("  done before")
        return None
    torch.manual_seed(0)
    try:
        work = functools.partial(BENCHMARKS[name].measure, settings, context)
        found, about = measured(work, context.command, context.gpus)
    except Mismatch as error:
        return f"refused, nothing was timed: {error}"
    except Exception as error:  # the other benchmarks go on
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    result = {
        "benchmark": name,
        "device": context.name,
        "settings": settings,
        "found": asdict(found),
        **about,
    }
    write_json(path, {key: result[key] for key in KEYS})
    return None


def write_page(context: Context) -> Path:
    """Render the page and the figure from all results."""
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


def run(parser: Parser, args: argparse.Namespace) -> int:
    """Run `python -m benchmarks` with parsed options and return its exit status."""
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
    for number, name in enumerate(names, 1):
        context.say(f"[{number}/{len(names)}] {name}: {BENCHMARKS[name].summary}")
        try:
            with quick_collections():
                failure = measure(name, context, args.quick)
        except KeyboardInterrupt:
            return 130
        if failure:
            failures[name] = failure
        page = write_page(context)
    context.say(f"written: {page}")
    for name, failure in failures.items():
        print(f"{name}: {failure}", file=sys.stderr)
    return 1 if failures else 0
