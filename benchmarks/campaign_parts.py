"""The parts of a GPU campaign: what is run, and how long it takes where it was never measured."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.catalog import BENCHMARKS

# Minutes on a GPU of a data centre, of an hour of which most parts take a few.
_TESTS, _SPEED = 4.0, 2.5
_MINUTES = {
    "cross_entropy": 4.0,
    "lm_step": 3.0,
    "causal": 4.0,
    "memory": 1.5,
    "scaling": 2.0,
    "decoding": 1.5,
    "table9": 12.0,
    "figure": 4.0,
}
# Rows of Table 2 whose training at scale paper is timed: the published Base, and an LRPE.
SPEEDS = (("base", "vanilla"), ("base", "linear"), ("lrpe_type2", "linear"))


@dataclass(frozen=True)
class Part:
    """Something that is run as a command of its own.

    Attributes:
        summary: what it does, in a line.
        command: run in the repository's root.
        minutes: it is thought to take.
    """

    name: str
    summary: str
    command: tuple[str, ...]
    minutes: float


def parts(output: Path, *, quick: bool, force: bool) -> list[Part]:
    """All parts: correctness first, then the paper's own recipe, then the targets.

    Args:
        output: where the results go.
        quick: tiny sizes on a CPU.
        force: measure again what the parts themselves find done.
    """
    shared = [*(["--quick"] if quick else ["--device", "gpu"]), *(["--force"] if force else [])]
    where = ("--output", str(output))
    python = (sys.executable, "-m")
    found = [
        Part("tests", "the tests that need a GPU", (*python, "pytest", "-q", "-m", "gpu"), _TESTS)
    ]
    found += [
        Part(
            f"speed-{row}-{attention}",
            f"tokens per second of Table 2's recipe at scale paper, {row} and {attention}",
            (
                *(*python, "benchmarks.paper_speed", "--row", row, "--attention", attention),
                *(*(["--quick"] if quick else []), *where),
            ),
            _SPEED,
        )
        for row, attention in SPEEDS
    ]
    on_gpu = {name for name, benchmark in BENCHMARKS.items() if "gpu" in benchmark.devices}
    order = [*_MINUTES, *(name for name in BENCHMARKS if name not in _MINUTES)]
    found += [
        Part(
            name,
            BENCHMARKS[name].summary,
            (*python, "benchmarks", "--only", name, *shared, *where),
            _MINUTES.get(name, 5.0),
        )
        for name in order
        if name in on_gpu
    ]
    if quick:  # a minute each is plenty
        found = [Part(p.name, p.summary, p.command, 1.0) for p in found]
    return found
