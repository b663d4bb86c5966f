"""`scripts/table9.sh`: the LRPE paper's Table 9."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from benchmarks.context import (
    Context,
    Settings,
    add_options,
    check_device,
    context_of,
    folder_name,
)
from benchmarks.targets import ROWS
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.runner.interruption import OutOfTime, hold_back_signals


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe table table9",
        description="LRPE, Table 9: speed of a training step of the bidirectional encoder relative "
        "to Base. Measures the cells that are not done and renders results/table9/<cpu|gpu>.md.",
        epilog="A cell with other settings, sources, versions or hardware is measured again. Exit "
        "status: 0 all done, 1 an attention is wrong, 2 nothing was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add(
        "--rows",
        type=words("--rows"),
        metavar="A,B",
        help=f"names of encodings, joined by + for several at once (default: {','.join(ROWS)})",
    )
    add(
        "--attention",
        type=words("--attention", ATTENTIONS),
        default=list(ATTENTIONS),
        metavar="A,B",
        help="linear, vanilla or both (default: both)",
    )
    add("--dry-run", action="store_true", help="print the cells that would be measured")
    add(
        "--name",
        type=folder_name("--name"),
        metavar="WORD",
        help="keep cells and page in results/table9/WORD, beside the published ones",
    )
    # Only inside Slurm jobs:
    add("--srun", action="store_true", help=argparse.SUPPRESS)
    add("--done", type=Path, help=argparse.SUPPRESS)  # file written at the end
    add_options(parser, quick="a tiny model, as a check")
    return parser


def main(arguments: Sequence[str] | None = None, prepare: Callable[[], None] = lambda: None) -> int:
    """Run the command and return its exit status; `prepare` is called before measuring."""
    parser = get_parser()
    args = parser.parse_args(arguments)
    if args.srun:
        hold_back_signals()
    prepare()
    return run(parser, args)


def run(parser: Parser, args: argparse.Namespace) -> int:
    """Run the command with parsed options and return its exit status."""
    import torch  # slow to import, as all below; --help stays fast

    from benchmarks.catalog import BENCHMARKS
    from benchmarks.reference import Mismatch
    from benchmarks.table9_cells import default_rows, measure_table
    from fairseq_plugins.runner.slurm_queue import requeue

    rows = args.rows or default_rows()
    try:
        check_rows(rows)
        if not args.dry_run:
            check_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    settings = BENCHMARKS["table9"].settings(args.device, args.quick)
    given = args.command_line
    typed = given[: given.index("--srun")] if args.srun else given
    context = context_of(args, ("scripts/table9.sh", *typed))
    if args.dry_run:
        dry_run(settings, context, rows, args.attention)
        return 0
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


def check_rows(rows: Sequence[str]) -> None:
    """Raise ValueError for an unknown encoding, with a suggestion."""
    from fairseq_plugins.encodings import ENCODINGS
    from fairseq_plugins.encodings.registry import expand_name

    for row in rows:
        for part in row.split("+"):
            if part not in ENCODINGS:
                hint = did_you_mean(part, ENCODINGS)
                raise ValueError(f"`--rows` must be names of encodings, but has {part!r}.{hint}")
        expand_name(row)


def dry_run(
    settings: Settings, context: Context, rows: Sequence[str], attentions: Sequence[str]
) -> None:
    """Print the settings and the cells that would be measured."""
    from benchmarks.record import CELL_KEYS
    from benchmarks.runner import is_done
    from benchmarks.table9_cells import cell_path

    context.say(f"settings: {', '.join(f'{key}={value}' for key, value in settings.items())}")
    for row in rows:
        for attention in attentions:
            path = cell_path(context, row, attention)
            done = is_done(path, CELL_KEYS, {"config": settings}, context)
            context.say(f"{path}: {'done' if done else 'to be measured'}")


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


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of libraries
    sys.exit(main(prepare=prepare_cpu))
