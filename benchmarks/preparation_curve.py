"""Cost of preparing WMT14, extrapolated from parts of a parallel text.

    python -m benchmarks.preparation_curve DIR --src en --tgt de

DIR holds train, valid and test as for scripts/prepare_parallel.sh. Growing parts of the training
text are prepared by one worker with WMT14's number of merges; wall seconds, CPU seconds and peak
memory of each phase are measured in a process of its own. A straight line and a power law are
fitted to the costs over the number of words, and extrapolated to WMT14. Since words repeat, costs
grow slower than a line, which is an upper bound; the power law takes constant costs for slower
growth and is a lower bound.
"""

import argparse
import functools
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.context import add_options, context_of
from benchmarks.record import Result, record
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import reading
from fairseq_plugins.common.option_types import numbers
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.processes import PeakOfChildren, resident

if TYPE_CHECKING:  # slow to import; --help stays fast
    from fairseq_plugins.translation.parallel import Paths
    from fairseq_plugins.translation.prepare import Settings

# Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", 4.1.
WMT14_PAIRS = 4_500_000
WMT14_WORDS = 226_000_000  # 116 million English, 110 million German
PHASES = ("gather", "tokenise", "learn", "apply", "clean and binarise")
MEASURED = ("wall_seconds", "cpu_seconds", "peak_mib")
FITS = ("line", "power")
Cost = dict[str, float]  # of a phase: MEASURED
_SIZES = (10_000, 20_000, 40_000, 80_000)
_SAMPLED_EVERY = 0.02  # seconds between samples of memory
_MIB = 2**20


def measure(work: Callable[[], object]) -> Cost:
    """Measure the cost of a function and of all its processes, in a process of its own.

    Raises:
        WorkError: the process failed.
    """
    process = multiprocessing.get_context("fork").Process(target=work)
    peak = PeakOfChildren(_SAMPLED_EVERY, resident)
    before, began = os.times(), time.monotonic()
    process.start()  # before the thread that samples, which a fork must not copy
    with peak:
        process.join()
    wall, after = time.monotonic() - began, os.times()
    if process.exitcode:
        raise WorkError(f"a phase ended with status {process.exitcode}")
    cpu = sum(after[i] - before[i] for i in (2, 3))  # of ended children
    values = (round(wall, 3), round(cpu, 3), round(peak.bytes / _MIB, 1))
    return dict(zip(MEASURED, values, strict=True))


def measure_size(
    settings: "Settings", texts: dict[str, "Paths"], languages: tuple[str, str], pairs: int
) -> Result:
    """Measure the costs of the first pairs of the training text.

    Raises:
        WorkError: a phase failed.
    """
    from fairseq_plugins.translation.parallel import ParallelText

    with tempfile.TemporaryDirectory() as name:
        work = Path(name, "work")
        work.mkdir()
        source, target = (Path(name, f"train.{language}") for language in languages)
        count = 0
        for path, part in zip(texts["train"], (source, target), strict=True):
            with reading(path) as lines, part.open("wb") as out:
                for line in itertools.islice(lines, pairs):
                    out.write(line)
                    count += len(line.split())
        text = ParallelText([(source, target)], texts["valid"], texts["test"])
        folder = settings.folder(Path(name, "made"), {"corpus": "part"}, languages)
        build = settings.build(work, languages)

        def finish() -> None:
            build.check_lengths(text)
            build.binarise(folder, {}, build.clean(("train",)))

        # Those of `ParallelBuild.make`, in its order.
        steps = (lambda: build.gather(text), build.tokenise, build.learn, build.apply, finish)
        costs = {phase: measure(step) for phase, step in zip(PHASES, steps, strict=True)}
    shown = ", ".join(f"{phase} {cost['cpu_seconds']:.1f} s" for phase, cost in costs.items())
    print(f"{pairs:,} pairs, CPU: {shown}", flush=True)
    return {"words": count, "costs": costs}


def extrapolate(sizes: Sequence[int], values: Sequence[float], size: int) -> dict[str, float]:
    """Extrapolate to a size by a line and by a power law, both fitted by least squares.

    Args:
        sizes: at least two different sizes.
        values: positive values at these sizes.
        size: the target size.
    """
    import numpy as np  # slow to import; --help stays fast

    slope, intercept = np.polyfit(sizes, values, 1)
    exponent, scale = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-3)), 1)
    power = np.exp(scale + exponent * np.log(size))
    # Costs never fall with the size, whatever the noise.
    found = {
        "line": max(slope * size + intercept, *values),
        "power": max(power, *values),
        "exponent": exponent,
    }
    return {name: round(float(value), 3) for name, value in found.items()}


def summarise(measurements: Sequence[Mapping[str, Any]], size: int) -> dict[str, Result]:
    """Extrapolate every quantity of every phase, and of `all`: sums, and the largest memory."""
    words = [one["words"] for one in measurements]
    found: dict[str, Result] = {
        phase: {
            name: extrapolate(words, [one["costs"][phase][name] for one in measurements], size)
            for name in MEASURED
        }
        for phase in PHASES
    }
    found["all"] = {}
    for name in MEASURED:
        join = max if name == "peak_mib" else sum
        values = {fit: join(found[phase][name][fit] for phase in PHASES) for fit in FITS}
        found["all"][name] = {fit: round(value, 1) for fit, value in values.items()}
    return found


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="python -m benchmarks.preparation_curve",
        description="Measure the preparation of growing parts of a parallel text and extrapolate "
        f"to WMT14's {WMT14_PAIRS:,} pairs of {WMT14_WORDS:,} words.",
    )
    add_options(parser)
    add = parser.add_argument
    text = "folder with train, valid and test, as for scripts/prepare_parallel.sh"
    add("source", type=Path, metavar="DIR", help=text)
    add("--src", default="en", metavar="LANG", help="(default: en)")
    add("--tgt", default="de", metavar="LANG", help="(default: de)")
    kind, text = numbers("--pairs", 1), f"sizes (default: {','.join(map(str, _SIZES))})"
    add("--pairs", type=kind, default=_SIZES, metavar="A,B", help=text)
    add("--merges", type=int, metavar="N", help="(default: WMT14's number)")
    return parser


def run(args: argparse.Namespace) -> None:
    """Measure, extrapolate, write the JSON and print a summary.

    Raises:
        ValueError: an invalid number, or a size above the text's.
        WorkError: a phase failed.
    """
    from fairseq_plugins.data.measure import sha256
    from fairseq_plugins.translation import prepare
    from fairseq_plugins.translation.parallel import count_lines

    if len(args.pairs) < 2:
        raise ValueError(f"--pairs must be two or more different numbers, but is {args.pairs[0]}.")
    settings = prepare.Settings(prepare.WMT14_MERGES if args.merges is None else args.merges)
    languages = (args.src, args.tgt)
    texts = prepare.find_texts(args.source, languages, option="DIR")
    if max(args.pairs) > (pairs := count_lines(texts["train"][0])):
        raise ValueError(
            f"`--pairs` must be at most the {pairs} pairs of {args.source}, but has "
            f"{max(args.pairs)}."
        )

    def work() -> Result:
        measure_part = functools.partial(measure_size, settings, texts, languages)
        found = {size: measure_part(size) for size in sorted(args.pairs)}
        fits = summarise([*found.values()], WMT14_WORDS)
        about = {"pairs": WMT14_PAIRS, "words": WMT14_WORDS}
        return {"measured": found, "extrapolated": {**about, **fits}}

    fields = {
        "benchmark": "preparation_curve",
        "settings": {"merges": settings.merges, "workers": 1, "languages": languages},
        "text": {p.name: sha256(p) for paths in texts.values() for p in paths},
    }
    context = context_of(args)
    path = context.folder / "preparation_curve.json"
    found = record(path, fields, work, context.command)["extrapolated"]["all"]
    for fit in FITS:
        hours, memory = found["cpu_seconds"][fit] / 3600, found["peak_mib"][fit] / 1024
        print(f"{WMT14_WORDS:,} words by a {fit}: {hours:.2f} hours of CPU, {memory:.1f} GiB")


main = command(get_parser, run, quiet=True)

if __name__ == "__main__":
    sys.exit(main())
