"""`scripts/table9.sh`: the LRPE paper's Table 9."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks.context import (
    Context,
    Settings,
    add_options,
    context_of,
    folder_name,
    prepare_process,
)
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
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
    add_options(parser, quick="a tiny model, as a check")
    add = parser.add_argument
    text = "names of encodings, joined by + for several at once (default: the paper's)"
    add("--rows", type=words("--rows"), metavar="A,B", help=text)
    kind, text = words("--attention", ATTENTIONS), "linear, vanilla or both (default: both)"
    add("--attention", type=kind, default=[*ATTENTIONS], metavar="A,B", help=text)
    add("--dry-run", action="store_true", help="print the cells that would be measured")
    text = "keep cells and page in results/table9/WORD, beside the published ones"
    add("--name", type=folder_name("--name"), metavar="WORD", help=text)
    # Only inside Slurm jobs:
    add("--srun", action="store_true", help=argparse.SUPPRESS)
    add("--done", type=Path, help=argparse.SUPPRESS)  # file written at the end
    return parser


def run(args: argparse.Namespace) -> int:
    """Measure the cells and return the exit status.

    Raises:
        ValueError: an unknown row, or there is no GPU.
        WorkError: an attention is wrong.
    """
    if args.srun:
        hold_back_signals()
    from benchmarks.catalog import BENCHMARKS  # slow to import, as all below; --help stays fast
    from benchmarks.reference import Mismatch
    from benchmarks.table9_cells import default_rows, measure_table
    from fairseq_plugins.runner.slurm_queue import requeue

    rows = args.rows or default_rows()
    check_rows(rows)
    settings = BENCHMARKS["table9"].settings(args.device, args.quick)
    given = args.command_line
    typed = given[: given.index("--srun")] if args.srun else given
    context = context_of(args, ("scripts/table9.sh", *typed))
    if args.dry_run:
        dry_run(settings, context, rows, args.attention)
        return 0
    prepare_process(args.device)
    measured: list[str] = []
    before = signal.signal(signal.SIGUSR1, _stop)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        measure_table(settings, context, rows, args.attention, measured.append)
    except Mismatch as error:
        raise WorkError(f"refused, nothing was timed: {error}") from None
    except OutOfTime:
        job = os.environ.get("SLURM_JOB_ID") if args.srun else None
        return requeue(int(job) if job else None, has_gained=bool(measured), step="cell")
    finally:
        signal.signal(signal.SIGUSR1, before)
    page = context.table9.with_name(f"{context.table9.name}.md")
    context.say(f"written: {page}")
    if args.done:
        found = {"command": context.command, "page": page.relative_to(context.output).as_posix()}
        write_json(args.done, found)
    return 0


def _stop(signum: int, frame: FrameType | None) -> None:
    """Stop at the signal that Slurm sends shortly before a job's time is over."""
    raise OutOfTime


def check_rows(rows: Sequence[str]) -> None:
    """Raise ValueError for an unknown encoding, with a suggestion."""
    from fairseq_plugins.encodings import ENCODINGS
    from fairseq_plugins.encodings.registry import expand_name
    from fairseq_plugins.experiments.rows import check_row

    for row in rows:
        for part in row.split("+"):
            check_row([*ENCODINGS], part, "`--rows` must be")
        expand_name(row)


def dry_run(
    settings: Settings, context: Context, rows: Sequence[str], attentions: Sequence[str]
) -> None:
    """Print the settings and the cells that would be measured."""
    from benchmarks.record import is_current
    from benchmarks.table9_cells import cell_file

    context.say(f"settings: {', '.join(f'{key}={value}' for key, value in settings.items())}")
    for row in rows:
        for attention in attentions:
            path, fields = cell_file(settings, context, row, attention)
            done = not context.force and is_current(path, fields, context.gpus)
            context.say(f"{path}: {'done' if done else 'to be measured'}")


main = command(get_parser, run, quiet=True, if_stopped="Stopped; the same command goes on.")

if __name__ == "__main__":
    sys.exit(main())
