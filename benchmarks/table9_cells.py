"""The cells of the LRPE paper's Table 9: speed of a training step relative to Base.

Each row and Base take turns, and the ratio is taken in each turn. Row `base` is Base against a
second Base, which shows the noise.
"""

import argparse
import functools
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from benchmarks.context import Context, Settings, context_of, device_problem
from benchmarks.limits import Peaks, Work, count_work, join_peaks, peak_settings, rates, with_peaks
from benchmarks.models import masked_language_model_step
from benchmarks.record import CELL_KEYS, Found, circumstances, is_current, measured, read_json
from benchmarks.reference import Mismatch, check_attention
from benchmarks.table9_page import read_cells, write_page
from benchmarks.targets import ROWS
from benchmarks.timing import Pace, Samples, interleave, quartiles
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError
from fairseq_plugins.encodings.registry import expand_name
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.runner.interruption import OutOfTime
from fairseq_plugins.runner.slurm_queue import requeue


def table9_settings(device: str, quick: bool) -> Settings:
    """Choose sizes for about a second per step on one thread of a CPU."""
    gpu = device == "gpu"
    return {
        "layers": 1 if quick else 12 if gpu else 4,
        "width": 32 if quick else 768 if gpu else 512,
        "heads": 2 if quick else 12 if gpu else 8,
        "ffn": 64 if quick else 3072 if gpu else 2048,
        "dictionary": 50 if quick else 1000,
        "batch": 32 if gpu and not quick else 2,
        "length": 16 if quick else 512,
        "dtype": "bfloat16 (autocast)" if gpu else "float32",
        "pace": vars(Pace(0.05, 2, 2) if quick else Pace(18.0, 7, 100)),
        "peaks": peak_settings(device, quick),
    }


def default_rows() -> list[str]:
    """List the table's rows whose encodings exist."""
    return [row for row in ROWS if row in ENCODINGS]


def check_rows(rows: Sequence[str]) -> None:
    """Raise ValueError for an unknown encoding, with a suggestion."""
    for row in rows:
        for part in row.split("+"):
            if part in ENCODINGS:
                continue
            hint = did_you_mean(part, ENCODINGS)
            raise ValueError(f"`--rows` must be names of encodings, but has {part!r}.{hint}")
        expand_name(row)


def run_table9(settings: Settings, context: Context) -> Found:
    """Measure the default rows under both attentions as one benchmark."""
    rows = default_rows()
    measure_table(settings, context, rows, ATTENTIONS)
    found = Found()
    cells = [cell for cell in read_cells(context.table9) if cell["row"] in rows]
    for cell in cells:
        key = f"{cell['row']} {cell['attention']}"
        found.ratios[key] = cell["metrics"]["relative_speed"]
        found.quartiles[key] = tuple(cell["metrics"]["quartiles"])
        found.medians[key] = cell["metrics"]["step_seconds"]
        found.rounds[key] = cell["metrics"]["rounds"]
        found.work[key], found.rates[key] = cell["metrics"]["work"], cell["metrics"]["rates"]
    found.peaks = join_peaks([cell["metrics"]["peaks"] for cell in cells])
    return found


def _path(context: Context, row: str, attention: str) -> Path:
    return context.table9 / f"{row}-{attention}.json"


def measure_table(
    settings: Settings,
    context: Context,
    rows: Sequence[str],
    attentions: Sequence[str],
    on_cell: Callable[[str], object] = lambda name: None,
) -> None:
    """Measure the cells that are not done, and render the page after each.

    on_cell: called with the name of each new cell.

    Raises:
        Mismatch: an attention is wrong; nothing is timed.
    """
    around = circumstances(context.gpus)
    for attention in attentions:
        check_attention(attention, causal=False, device=context.device, dtype=context.dtype)
    cells = [(row, attention) for row in rows for attention in attentions]
    for number, (row, attention) in enumerate(cells, 1):
        label = f"  [{number}/{len(cells)}] {row}, {attention}"
        if is_done(settings, context, row, attention, around):
            context.say(f"{label}: done before")
            continue
        cell, about = measured(
            functools.partial(measure_cell, settings, context, row, attention), context.gpus
        )
        if isinstance(cell, str):
            context.say(f"{label}: - ({cell.partition(':')[0]})")
            continue
        whole = {**cell, **about}
        write_json(_path(context, row, attention), {key: whole[key] for key in CELL_KEYS})
        write_page(context.table9)
        on_cell(f"{row}, {attention}")
        context.say(f"{label}: {cell['metrics']['relative_speed']:.3f}")
    write_page(context.table9)


def is_done(
    settings: Settings, context: Context, row: str, attention: str, around: dict[str, Any]
) -> bool:
    """Return whether a cell has these settings, sources, versions and hardware."""
    cell = None if context.force else read_json(_path(context, row, attention), CELL_KEYS)
    return cell is not None and is_current(cell, {"config": settings, **around})


def measure_cell(
    settings: Settings, context: Context, row: str, attention: str
) -> dict[str, Any] | str:
    """Measure a cell of the table, without provenance; or return why there is none."""
    try:
        mine = masked_language_model_step(settings, context, attention, row)
    except IncompatibleEncodingError as error:
        return str(error)
    base = masked_language_model_step(settings, context, attention, "base")

    def timed() -> Samples:
        return interleave({"base": base, "row": mine}, Pace(**settings["pace"]), context.device)

    samples, peaks = with_peaks(timed, settings["peaks"], context)
    return {
        "table": "table9",
        "row": row,
        "attention": attention,
        "scale": context.name,
        "metrics": _metrics(samples, count_work(mine), peaks),
        "command": list(context.command),
        "config": settings,
    }


def _metrics(samples: Samples, work: Work, peaks: Peaks) -> dict[str, Any]:
    speeds = samples.ratios("base", "row")  # ratio of times: above 1 if the row is faster
    return {
        "relative_speed": round(statistics.median(speeds), 4),
        "quartiles": [round(value, 4) for value in quartiles(speeds)],
        "rounds": samples.rounds,
        "step_seconds": samples.median("row"),
        "base_step_seconds": samples.median("base"),
        "work": vars(work),
        "rates": rates(work, samples.median("row"), peaks),
        "peaks": peaks,
    }


def dry_run(
    settings: Settings,
    context: Context,
    rows: Sequence[str],
    attentions: Sequence[str],
    say: Callable[[str], None],
) -> None:
    """Print the settings and the cells that would be measured."""
    around = circumstances(context.gpus)
    say(f"settings: {', '.join(f'{key}={value}' for key, value in settings.items())}")
    for row in rows:
        for attention in attentions:
            done = is_done(settings, context, row, attention, around)
            say(f"{_path(context, row, attention)}: {'done' if done else 'to be measured'}")


@contextmanager
def _out_of_time() -> Iterator[None]:
    """Raise OutOfTime on SIGUSR1, which Slurm sends shortly before a job's time is over."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGUSR1, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, given: Sequence[str]) -> int:
    """Run `scripts/table9.sh` with parsed options and return its exit status."""
    rows = args.rows or default_rows()
    try:
        check_rows(rows)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    settings = table9_settings(args.device, args.quick)
    typed = given[: given.index("--srun")] if args.srun else given
    context = context_of(args, ("scripts/table9.sh", *typed))
    if args.dry_run:
        dry_run(settings, context, rows, args.attention, context.say)
        return 0
    problem = device_problem(args.device)
    if problem:
        parser.error(problem)
    measured: list[str] = []
    try:
        with _out_of_time():
            measure_table(settings, context, rows, args.attention, measured.append)
    except Mismatch as error:
        print(f"refused, nothing was timed: {error}", file=sys.stderr)
        return 1
    except OutOfTime:
        job = os.environ.get("SLURM_JOB_ID") if args.srun else None
        return requeue(int(job) if job else None, has_gained=bool(measured), step="cell")
    except KeyboardInterrupt:
        return 130
    page = context.table9.with_name(f"{context.table9.name}.md")
    context.say(f"written: {page}")
    if args.done:
        found = {"command": context.command, "page": page.relative_to(context.output).as_posix()}
        write_json(args.done, found)
    return 0
