"""How long the preparation of WMT14 takes, from smaller parts of a parallel text.

    python -m benchmarks.preparation_curve DIR --src en --tgt de

DIR holds train, valid and test as scripts/prepare_parallel.sh takes them. Growing parts of the
training text are prepared by one worker, with as many merges as WMT14 gets, and wall seconds, CPU
seconds and peak memory of each phase are measured, in a process of its own with all that it starts.
Through the sizes goes a straight line, and a power of the size; both are followed to 4.5 million
pairs. Where words repeat, work grows slower than a line, which is then the upper bound.
"""

import argparse
import functools
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.context import Context
from benchmarks.options import add_machine
from benchmarks.record import ROOT, circumstances, end_of_run, load_average
from fairseq_plugins.common import provenance
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import reading, write_json
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.reproduce.__main__ import words
from fairseq_plugins.translation.folders import ParallelBuild
from fairseq_plugins.translation.parallel import Cleaning, ParallelText, Paths, find_text
from fairseq_plugins.translation.prepare import (
    TEST_NAMES,
    TRAIN_NAMES,
    VALID_NAMES,
    WMT14_MERGES,
    Settings,
)

WMT14_PAIRS = 4_500_000  # of the training text, some 4.5 million (Vaswani et al. 2017, 5.1)
PHASES = ("gather", "tokenise", "learn", "apply", "clean and binarise")
MEASURED = ("wall_seconds", "cpu_seconds", "peak_mib")
_SAMPLED_EVERY = 0.02  # seconds between two looks at memory
_MIB = 2**20


@dataclass(frozen=True)
class Cost:
    """Of a phase; memory is that of all its processes together, at most."""

    wall_seconds: float
    cpu_seconds: float
    peak_mib: float


def measure(work: Callable[[], object]) -> Cost:
    """What some work takes in a process of its own, with the processes that it starts.

    Raises:
        RuntimeError: where it fails.
    """
    process = multiprocessing.get_context("fork").Process(target=work)
    before, began = os.times(), time.monotonic()
    process.start()
    peak = 0
    while process.is_alive():
        peak = max(peak, sum(map(_resident, _tree(process.pid or 0))))
        process.join(_SAMPLED_EVERY)
    wall, after = time.monotonic() - began, os.times()
    if process.exitcode:
        raise RuntimeError(f"a phase ended with status {process.exitcode}")
    cpu = sum(after[i] - before[i] for i in (2, 3))  # of children that have ended
    return Cost(round(wall, 3), round(cpu, 3), round(peak / _MIB, 1))


def _tree(pid: int) -> list[int]:
    """A process and all that it started, of those that still run."""
    found = [pid]
    for parent in found:
        try:
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += map(int, text.split())
    return found


def _resident(pid: int) -> int:
    """Bytes of memory of a process; what it shares with others counts in each."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def phases(build: ParallelBuild, text: ParallelText, output: Path) -> dict[str, Callable[[], None]]:
    """The steps of `ParallelBuild.make`, each to be run on its own after those before it."""
    folder = Settings(build.merges).folder(output, {"corpus": "part"}, build.languages)

    def finish() -> None:
        build.check_lengths(text)
        build.binarise(folder, {}, build.clean(("train",)))

    steps = (
        functools.partial(build.gather, text),
        build.tokenise,
        build.learn,
        build.apply,
        finish,
    )
    return dict(zip(PHASES, steps, strict=True))


def measure_size(
    texts: dict[str, Paths], languages: tuple[str, str], pairs: int, merges: int
) -> dict[str, Cost]:
    """Phase -> its cost for the first pairs of the training text.

    Raises:
        RuntimeError: where a phase fails.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name, "work")
        work.mkdir()
        source, target = (
            _take(path, pairs, Path(name, f"train.{language}"))
            for path, language in zip(texts["train"], languages, strict=True)
        )
        text = ParallelText([(source, target)], texts["valid"], texts["test"])
        build = ParallelBuild(work, languages, merges, Cleaning(), workers=1)
        steps = phases(build, text, Path(name, "made"))
        return {phase: measure(step) for phase, step in steps.items()}


def _take(path: Path, lines: int, target: Path) -> Path:
    """The first lines of a file that may be packed."""
    with reading(path) as source, target.open("wb") as out:
        for _ in range(lines):
            out.write(source.readline())
    return target


def extrapolate(sizes: Sequence[int], values: Sequence[float], size: int) -> dict[str, float]:
    """What a straight line and a power of the size, both by least squares, give at another size.

    Args:
        sizes: at least two different ones.
        values: at them, positive.
        size: where the two are asked for.
    """
    slope, intercept = np.polyfit(sizes, values, 1)
    exponent, scale = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-3)), 1)
    found = {
        "line": slope * size + intercept,
        "power": float(np.exp(scale + exponent * np.log(size))),
        "exponent": exponent,
    }
    return {name: round(float(value), 3) for name, value in found.items()}


def summarise(costs: dict[int, dict[str, Cost]], size: int) -> dict[str, dict[str, Any]]:
    """Phase (and `all`, whose memory is the largest) -> quantity -> extrapolations."""
    found: dict[str, dict[str, Any]] = {}
    for name in MEASURED:
        rows = {phase: [getattr(c[phase], name) for c in costs.values()] for phase in PHASES}
        for phase, values in rows.items():
            found.setdefault(phase, {})[name] = extrapolate(list(costs), values, size)
        together = max if name == "peak_mib" else sum
        found.setdefault("all", {})[name] = {
            way: round(together(found[phase][name][way] for phase in PHASES), 1)
            for way in ("line", "power")
        }
    return found


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.preparation_curve",
        description="Measures the preparation of growing parts of a parallel text and extrapolates "
        f"to WMT14's {WMT14_PAIRS:,} pairs.",
    )
    add = parser.add_argument
    add("source", type=Path, metavar="DIR", help="folder with train, valid and test, as "
        "scripts/prepare_parallel.sh takes them")  # fmt: skip
    add("--src", default="en", metavar="LANG", help="(default: en)")
    add("--tgt", default="de", metavar="LANG", help="(default: de)")
    add("--pairs", type=words("--pairs"), default=["10000", "20000", "40000", "80000"],
        metavar="A,B", help="sizes (default: 10000,20000,40000,80000)")  # fmt: skip
    add("--merges", type=int, default=WMT14_MERGES, metavar="N", help=f"(default: {WMT14_MERGES})")
    add_machine(parser)
    add("--output", type=Path, default=ROOT, metavar="DIR", help="in place of the repository")
    return parser


def _sizes(given: Sequence[str]) -> list[int]:
    if len(set(given)) < 2 or not all(word.isdecimal() and int(word) > 0 for word in given):
        raise ValueError(
            f"`--pairs` must be two or more different numbers above 0, but is {','.join(given)!r}."
        )
    return sorted({int(word) for word in given})


def run(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Measure, extrapolate, write the JSON and say what was found.

    Raises:
        ValueError: for numbers that cannot be, and sizes beyond what there is.
    """
    sizes = _sizes(args.pairs)
    Settings(args.merges)  # refuses what it cannot be
    languages = (args.src, args.tgt)
    texts: dict[str, Paths] = {}
    for split, names in (("train", TRAIN_NAMES), ("valid", VALID_NAMES), ("test", TEST_NAMES)):
        source, target = (
            find_text(args.source, [f"{name}.{lang}" for name in names], "DIR")
            for lang in languages
        )
        texts[split] = (source, target)
    with reading(texts["train"][0]) as lines:
        there = sum(1 for _ in lines)
    if sizes[-1] > there:
        raise ValueError(
            f"`--pairs` must be at most the {there} pairs of {args.source}, but has {sizes[-1]}."
        )
    load, began = load_average(), time.monotonic()
    costs: dict[int, dict[str, Cost]] = {}
    for size in sizes:
        costs[size] = measure_size(texts, languages, size, args.merges)
        shown = ", ".join(f"{p} {c.cpu_seconds:.1f} s" for p, c in costs[size].items())
        print(f"{size:,} pairs, CPU: {shown}", flush=True)
    found = summarise(costs, WMT14_PAIRS)
    result = {
        "benchmark": "preparation_curve",
        "settings": {"merges": args.merges, "workers": 1, "languages": languages},
        "text": {p.name: sha256(p) for paths in texts.values() for p in paths},
        "measured": {n: {p: vars(c) for p, c in cost.items()} for n, cost in costs.items()},
        "extrapolated": {"pairs": WMT14_PAIRS, **found},
        "command": provenance.without_absolute_paths(list(command)),
        **circumstances(0),
        **end_of_run(load, time.monotonic() - began),
    }
    context = Context("cpu", args.output, machine=args.machine)
    write_json(context.results / "cpu" / "preparation_curve.json", result)
    for way in ("line", "power"):
        hours, memory = (
            found["all"]["cpu_seconds"][way] / 3600,
            found["all"]["peak_mib"][way] / 1024,
        )
        print(f"{WMT14_PAIRS:,} pairs by a {way}: {hours:.2f} hours of CPU, {memory:.1f} GiB")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 measured, 1 not."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = get_parser().parse_args(given)
    command = ["python", "-m", "benchmarks.preparation_curve", *given]
    return exit_status("preparation_curve", lambda: run(args, command))


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main())
