"""Whole trainings at this commit and at another, side by side: speed, and the loss of every update.

    python -m benchmarks.training OTHER

OTHER is a checkout of the other commit; both have the data of Table 2 at scale mini. The two train
at once, a thread each, so that a busy hour slows both alike. In float64 the losses say whether the
two compute the same, where in float32 roundings grow through a thousand updates.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.options import add_machine
from benchmarks.record import ROOT, circumstances, end_of_run, load_average
from fairseq_plugins.cli.table_options import words
from fairseq_plugins.common import provenance
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.papers.tables import ATTENTIONS

DTYPES = ("float32", "float64")
ALIKE = 1e-4


@dataclass(frozen=True)
class Training:
    """What one training left: nats per token of every update, and tokens a second."""

    losses: list[float]
    tokens_per_second: float


@dataclass(frozen=True)
class Comparison:
    """How far the losses of two trainings are apart.

    Attributes:
        largest: difference of an update.
        first_unlike: the first update at which it is above 1e-4, None where it never is.
        last_hundred: difference of the means over the last hundred updates.
    """

    largest: float
    first_unlike: int | None
    last_hundred: float


def compare(before: Sequence[float], after: Sequence[float]) -> Comparison:
    """The losses of two trainings, update by update.

    Raises:
        ValueError: trainings of different length, which cannot be compared.
    """
    if len(before) != len(after) or not before:
        raise ValueError(
            f"two trainings must have as many updates, but have {len(before)} and {len(after)}."
        )
    apart = [abs(a - b) for a, b in zip(before, after, strict=True)]
    unlike = (i for i, difference in enumerate(apart, 1) if difference > ALIKE)
    last = [sum(losses[-100:]) / len(losses[-100:]) for losses in (before, after)]
    return Comparison(max(apart), next(unlike, None), abs(last[0] - last[1]))


def overrides(row: str, attention: str) -> list[str]:
    """Hydra's words for a row of Table 2 at scale mini, the first seed, a thread of a CPU."""
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
    """The same training in every checkout, all at once.

    Raises:
        RuntimeError: one that fails, with the end of its log.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = [
            _start(root, given, dtype, Path(folder, f"{number}"))
            for number, root in enumerate(checkouts)
        ]
        for process, path in started:
            process.wait()
            if process.returncode:
                log = path.with_suffix(".log").read_text(errors="replace")
                raise RuntimeError(f"a training failed:\n{log[-2000:]}")
        return [Training(**json.loads(path.read_text())) for _, path in started]


def _start(
    root: Path, given: Sequence[str], dtype: str, path: Path
) -> "tuple[subprocess.Popen[bytes], Path]":
    from fairseq_plugins.experiments.training import train_command  # not for --help

    program = Path(__file__).with_name("observed_training.py").resolve()
    command = [sys.executable, "-P", str(program), str(path), dtype]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    with path.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *train_command("wikitext103_lm", given)[1:]],
            cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    return process, path


def _measure(other: Path, row: str, attention: str, dtype: str) -> dict[str, Any]:
    """A result but for where it comes from."""
    before, after = train((other, ROOT), overrides(row, attention), dtype)
    return {
        "row": row,
        "attention": attention,
        "dtype": dtype,
        "scale": "mini",
        "seed": 1,
        "updates": len(after.losses),
        "differences": asdict(compare(before.losses, after.losses)),
        "before": _summary(before) | {"commit": provenance.commit(other)},
        "after": _summary(after),
    }


def _summary(training: Training) -> dict[str, Any]:
    last = training.losses[-100:]
    return {
        "tokens_per_second": round(training.tokens_per_second),
        "loss_of_last_hundred": sum(last) / len(last),
    }


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(prog="python -m benchmarks.training", description=__doc__)
    add = parser.add_argument
    add("other", type=Path, metavar="OTHER", help="a checkout of the commit to compare with")
    add("--rows", type=words("--rows"), default=["base", "lrpe_type2"], metavar="A,B")
    add(
        "--attention",
        type=words("--attention", ATTENTIONS),
        default=list(ATTENTIONS),
        metavar="A,B",
    )
    add("--dtype", type=words("--dtype", DTYPES), default=list(DTYPES), metavar="A,B")
    add_machine(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = get_parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(given)
    for root in (args.other, ROOT):
        if not (root / "data" / "wikitext-2-mini").is_dir():
            parser.error(f"no data/wikitext-2-mini in {root}: run scripts/prepare_wikitext2.sh")
    folder = Context("cpu", ROOT, machine=args.machine).results / "cpu" / "training"
    for dtype in args.dtype:
        for row in args.rows:
            for attention in args.attention:
                load, began = load_average(), time.monotonic()
                result = _measure(args.other.resolve(), row, attention, dtype)
                result |= {"command": ["python -m benchmarks.training", "OTHER", *given[1:]]}
                result |= circumstances(0) | end_of_run(load, time.monotonic() - began)
                write_json(folder / f"{row}-{attention}-{dtype}.json", result)
                speeds = [result[side]["tokens_per_second"] for side in ("before", "after")]
                print(
                    f"{row}, {attention}, {dtype}: {speeds[0]:,} and {speeds[1]:,} tokens per "
                    f"second, losses at most {result['differences']['largest']:.1e} apart",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main())
