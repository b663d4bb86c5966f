"""Benchmarks one after the other, and the page of what they found."""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.catalog import BENCHMARKS, check_names
from benchmarks.context import Context, context_of, device_problem
from benchmarks.figure_page import draw, has_matplotlib
from benchmarks.page import render
from benchmarks.record import (
    KEYS,
    Result,
    circumstances,
    load_average,
    read_json,
    still_holds,
    write_result,
)
from benchmarks.reference import Mismatch
from fairseq_plugins.common.files import write_text


def measure(name: str, context: Context, quick: bool) -> str | None:
    """Run a benchmark unless it is done; returns why it failed, None where it did not."""
    settings = BENCHMARKS[name].settings(context.name, quick)
    around = circumstances(context.gpus)
    path = context.results / context.name / f"{name}.json"
    existing = None if context.force else read_json(path, KEYS)
    if existing is not None and still_holds(existing, {"settings": settings, **around}):
        context.say("  done before")
        return None
    torch.manual_seed(0)
    load, began = load_average(), time.monotonic()
    try:
        found = BENCHMARKS[name].run(settings, context)
    except Mismatch as error:
        return f"refused, nothing was timed: {error}"
    except Exception as error:  # the others go on
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    write_result(
        path,
        benchmark=name,
        device=context.name,
        settings=settings,
        found=found,
        command=context.command,
        around=around,
        load=load,
        wall_seconds=time.monotonic() - began,
    )
    return None


def write_page(context: Context) -> Path:
    """Render the page from all results that are there, and the figure."""
    folder = context.results / context.name
    results: dict[str, Result] = {}
    for name in BENCHMARKS:
        result = read_json(folder / f"{name}.json", KEYS)
        if result is not None:
            results[name] = result
    if "figure" in results:
        if has_matplotlib():
            draw(results["figure"], context.results / f"{context.name}-lengths.png")
        else:
            context.say("  the figure is not drawn: matplotlib is not installed")
    page = context.results / f"{context.name}.md"
    summaries = {name: benchmark.summary for name, benchmark in BENCHMARKS.items()}
    write_text(page, render(context.name, results, summaries))
    return page


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, given: Sequence[str]) -> int:
    """What the options of `python -m benchmarks` say; the exit status."""
    if args.list:
        print("\n".join(f"{name:13} {b.summary}" for name, b in BENCHMARKS.items()))
        return 0
    try:
        names = check_names(args.only, args.device)
    except ValueError as error:
        parser.error(str(error))
    problem = device_problem(args.device)
    if problem:
        parser.error(problem)
    torch.set_num_threads(1)
    context = context_of(args, ("python", "-m", "benchmarks", *given))
    if load_average() > 0.5:
        context.say(f"the machine is busy, load average {load_average()}: ratios will scatter")
    failures = {}
    for number, name in enumerate(names, 1):
        context.say(f"[{number}/{len(names)}] {name}: {BENCHMARKS[name].summary}")
        try:
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
