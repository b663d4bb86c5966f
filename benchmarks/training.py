"""Training at this commit and at another, side by side: speed, and the loss of every update.

    python -m benchmarks.training OTHER

OTHER is a checkout of the other commit; both need the data of Table 2 at scale mini. Both train at
the same time on a thread each, so that a busy machine slows both alike. Losses in float64 show
whether both compute the same; in float32, rounding grows over a thousand updates.
"""

import argparse
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.options import add_machine
from benchmarks.record import ROOT, measured
from fairseq_plugins.common import provenance
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.papers.tables import ATTENTIONS

DTYPES = ("float32", "float64")
ALIKE = 1e-4


@dataclass(frozen=True)
class Training:
    """Losses of a training in nats per token, and its speed."""

    losses: list[float]
    tokens_per_second: float

    def summary(self) -> dict[str, Any]:
        return {
            "tokens_per_second": round(self.tokens_per_second),
            "loss_of_last_hundred": _mean_of_last(self.losses),
        }


@dataclass(frozen=True)
class Comparison:
    """Differences between the losses of two trainings.

    Attributes:
        largest: largest difference of an update.
        first_unlike: first update with a difference above 1e-4, or None.
        last_hundred: difference of the means over the last hundred updates.
    """

    largest: float
    first_unlike: int | None
    last_hundred: float


def _mean_of_last(losses: Sequence[float]) -> float:
    return sum(losses[-100:]) / len(losses[-100:])


def compare(before: Sequence[float], after: Sequence[float]) -> Comparison:
    """Compare the losses of two trainings update by update.

    Raises:
        ValueError: the trainings have different lengths.
    """
    if len(before) != len(after) or not before:
        raise ValueError(
            f"two trainings must have as many updates, but have {len(before)} and {len(after)}."
        )
    apart = [abs(a - b) for a, b in zip(before, after, strict=True)]
    unlike = (i for i, difference in enumerate(apart, 1) if difference > ALIKE)
    last = abs(_mean_of_last(before) - _mean_of_last(after))
    return Comparison(max(apart), next(unlike, None), last)


def overrides(row: str, attention: str) -> list[str]:
    """Return Hydra's overrides for a row of Table 2 at scale mini on a CPU."""
    return [
        f"model={row}",
        "scale=mini",
        f"model.attention_type={attention}",
        "common.seed=1",
        "run=local",
        "common.cpu=true",
        "checkpoint.no_save=true",
    ]


def train(checkouts: Sequence[Path], given: Sequence[str], dtype: str) -> list[Training]:
    """Run the same training in every checkout, in parallel.

    Raises:
        RuntimeError: a training failed; the message has the end of its log.
    """
    from fairseq_plugins.experiments.training import train_command  # slow to import

    program = Path(__file__).with_name("observed_training.py").resolve()
    recipe = train_command("wikitext103_lm", given)[1:]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number, root in enumerate(checkouts):
            path = Path(folder, f"{number}")
            environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-P", str(program), str(path), dtype, *recipe]
            with path.with_suffix(".log").open("wb") as log:
                process = subprocess.Popen(
                    command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT
                )
            started.append((process, path))
        for process, path in started:
            process.wait()
            if process.returncode:
                log_text = path.with_suffix(".log").read_text(errors="replace")
                raise RuntimeError(f"a training failed:\n{log_text[-2000:]}")
        return [Training(**json.loads(path.read_text())) for _, path in started]


def _measure(other: Path, row: str, attention: str, dtype: str) -> dict[str, Any]:
    """Measure a result, without provenance."""
    before, after = train((other, ROOT), overrides(row, attention), dtype)
    return {
        "row": row,
        "attention": attention,
        "dtype": dtype,
        "scale": "mini",
        "seed": 1,
        "updates": len(after.losses),
        "differences": asdict(compare(before.losses, after.losses)),
        "before": before.summary() | {"commit": provenance.commit(other)},
        "after": after.summary(),
    }


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(prog="python -m benchmarks.training", description=__doc__)
    add = parser.add_argument
    add("other", type=Path, metavar="OTHER", help="a checkout of the commit to compare with")
    add("--rows", type=words("--rows"), default=["base", "lrpe_type2"], metavar="A,B")
    for option, known in (("--attention", ATTENTIONS), ("--dtype", DTYPES)):
        add(option, type=words(option, known), default=list(known), metavar="A,B")
    add_machine(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = get_parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(given)
    for root in (args.other, ROOT):
        if not (root / "data" / "wikitext-2-mini").is_dir():
            parser.error(f"no data/wikitext-2-mini in {root}: run scripts/prepare_wikitext2.sh")
    folder = Context("cpu", ROOT, machine=args.machine).results / "cpu" / "training"
    for dtype, row, attention in product(args.dtype, args.rows, args.attention):
        work = functools.partial(_measure, args.other.resolve(), row, attention, dtype)
        result, about = measured(work)
        command = ["python -m benchmarks.training", "OTHER", *given[1:]]
        path = folder / f"{row}-{attention}-{dtype}.json"
        write_json(path, {**result, "command": command, **about})
        speeds = [result[side]["tokens_per_second"] for side in ("before", "after")]
        print(
            f"{row}, {attention}, {dtype}: {speeds[0]:,} and {speeds[1]:,} tokens per second, "
            f"losses at most {result['differences']['largest']:.1e} apart",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main())
