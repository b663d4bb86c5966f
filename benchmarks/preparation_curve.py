"""How long the preparation of WMT14 takes, from smaller parts of a parallel text.

    python -m benchmarks.preparation_curve DIR --src en --tgt de

DIR holds train, valid and test as scripts/prepare_parallel.sh takes them. Growing parts of the
training text are prepared by one worker, with as many merges as WMT14 gets, and wall seconds, CPU
seconds and peak memory of each phase are measured, in a process of its own with all that it starts.
Through the sizes, counted in words since texts have sentences of different length, goes a straight
line, and a power of the size; both are followed to WMT14's. Where words repeat, work grows slower
than a line, which is then the upper bound; a power takes what is spent once, on starting and on the
validation and test sets, for growth that slows, and is then the lower one.
"""

import argparse
import functools
import itertools
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.context import Context
from benchmarks.options import add_machine
from benchmarks.processes import resident, tree
from benchmarks.record import ROOT, circumstances, end_of_run, load_average
from fairseq_plugins.cli.table_options import words
from fairseq_plugins.common import provenance
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import reading, write_json
from fairseq_plugins.common.parser import Parser

if TYPE_CHECKING:  # what prepares is imported where it is used: --help must not load it
    from fairseq_plugins.translation.folders import ParallelBuild
    from fairseq_plugins.translation.parallel import ParallelText, Paths

# Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", 4.1.
WMT14_PAIRS = 4_500_000
WMT14_WORDS = 226_000_000  # 116 million English, 110 million German
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
        peak = max(peak, sum(map(resident, tree(process.pid or 0))))
        process.join(_SAMPLED_EVERY)
    wall, after = time.monotonic() - began, os.times()
    if process.exitcode:
        raise RuntimeError(f"a phase ended with status {process.exitcode}")
    cpu = sum(after[i] - before[i] for i in (2, 3))  # of children that have ended
    return Cost(round(wall, 3), round(cpu, 3), round(peak / _MIB, 1))


def phases(
    build: "ParallelBuild", text: "ParallelText", output: Path
) -> dict[str, Callable[[], None]]:
    """The steps of `ParallelBuild.make`, each to be run on its own after those before it."""
    from fairseq_plugins.translation.prepare import Settings

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


@dataclass(frozen=True)
class Size:
    """A part of the training text: words of both sides, and what each phase takes."""

    words: int
    costs: dict[str, Cost]


def measure_size(
    texts: dict[str, "Paths"], languages: tuple[str, str], pairs: int, merges: int
) -> Size:
    """The costs of the first pairs of the training text.

    Raises:
        RuntimeError: where a phase fails.
    """
    from fairseq_plugins.translation.folders import ParallelBuild
    from fairseq_plugins.translation.parallel import Cleaning, ParallelText

    with tempfile.TemporaryDirectory() as name:
        work = Path(name, "work")
        work.mkdir()
        source, target = (Path(name, f"train.{language}") for language in languages)
        both = zip(texts["train"], (source, target), strict=True)
        count = sum(_take(path, pairs, part) for path, part in both)
        text = ParallelText([(source, target)], texts["valid"], texts["test"])
        build = ParallelBuild(work, languages, merges, Cleaning(), workers=1)
        steps = phases(build, text, Path(name, "made"))
        return Size(count, {phase: measure(step) for phase, step in steps.items()})


def _take(path: Path, lines: int, target: Path) -> int:
    """Write the first lines of a file that may be packed; their words."""
    count = 0
    with reading(path) as source, target.open("wb") as out:
        for line in itertools.islice(source, lines):
            out.write(line)
            count += len(line.split())
    return count


def extrapolate(sizes: Sequence[int], values: Sequence[float], size: int) -> dict[str, float]:
    """What a straight line and a power of the size, both by least squares, give at another size.

    Args:
        sizes: at least two different ones.
        values: at them, positive.
        size: where the two are asked for.
    """
    import numpy as np  # which --help must not load

    slope, intercept = np.polyfit(sizes, values, 1)
    exponent, scale = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-3)), 1)
    power = np.exp(scale + exponent * np.log(size))
    # A larger text takes no less than a smaller one, whatever the noise.
    found = {
        "line": max(slope * size + intercept, *values),
        "power": max(power, *values),
        "exponent": exponent,
    }
    return {name: round(float(value), 3) for name, value in found.items()}


def summarise(measured: Sequence[Size], size: int) -> dict[str, dict[str, Any]]:
    """Phase (and `all`, whose memory is the largest) -> quantity -> extrapolations to a size."""
    found: dict[str, dict[str, Any]] = {}
    for name in MEASURED:
        for phase in PHASES:
            values = [getattr(one.costs[phase], name) for one in measured]
            ways = extrapolate([one.words for one in measured], values, size)
            found.setdefault(phase, {})[name] = ways
        together = max if name == "peak_mib" else sum
        found.setdefault("all", {})[name] = {
            way: round(together(found[phase][name][way] for phase in PHASES), 1)
            for way in ("line", "power")
        }
    return found


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="python -m benchmarks.preparation_curve",
        description="Measures the preparation of growing parts of a parallel text and extrapolates "
        f"to WMT14's {WMT14_PAIRS:,} pairs of {WMT14_WORDS:,} words.",
    )
    add = parser.add_argument
    add("source", type=Path, metavar="DIR", help="folder with train, valid and test, as "
        "scripts/prepare_parallel.sh takes them")  # fmt: skip
    add("--src", default="en", metavar="LANG", help="(default: en)")
    add("--tgt", default="de", metavar="LANG", help="(default: de)")
    add("--pairs", type=words("--pairs"), default=["10000", "20000", "40000", "80000"],
        metavar="A,B", help="sizes (default: 10000,20000,40000,80000)")  # fmt: skip
    add("--merges", type=int, metavar="N", help="(default: as many as WMT14 gets)")
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
    from fairseq_plugins.data.measure import sha256
    from fairseq_plugins.translation.parallel import find_text
    from fairseq_plugins.translation.prepare import (
        TEST_NAMES,
        TRAIN_NAMES,
        VALID_NAMES,
        WMT14_MERGES,
        Settings,
    )

    sizes = _sizes(args.pairs)
    merges = WMT14_MERGES if args.merges is None else args.merges
    Settings(merges)  # refuses what it cannot be
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
    measured: dict[int, Size] = {}
    for size in sizes:
        measured[size] = measure_size(texts, languages, size, merges)
        costs = measured[size].costs.items()
        shown = ", ".join(f"{phase} {cost.cpu_seconds:.1f} s" for phase, cost in costs)
        print(f"{size:,} pairs, CPU: {shown}", flush=True)
    found = summarise(list(measured.values()), WMT14_WORDS)
    result = {
        "benchmark": "preparation_curve",
        "settings": {"merges": merges, "workers": 1, "languages": languages},
        "text": {p.name: sha256(p) for paths in texts.values() for p in paths},
        "measured": {pairs: asdict(size) for pairs, size in measured.items()},
        "extrapolated": {"pairs": WMT14_PAIRS, "words": WMT14_WORDS, **found},
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
        print(f"{WMT14_WORDS:,} words by a {way}: {hours:.2f} hours of CPU, {memory:.1f} GiB")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 measured, 1 failed, 2 refused."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = get_parser().parse_args(given)
    command = ["python", "-m", "benchmarks.preparation_curve", *given]
    return exit_status(args.program, lambda: run(args, command))


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main())
