"""``fairseq-pe status``: the status of all runs and pages."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.papers import SCALE_NAMES, TABLES
from fairseq_plugins.runner.slurm_queue import NoSlurm, Queued, read_queue, read_submissions
from fairseq_plugins.runner.status import (
    CANCELLED,
    DONE,
    FAILED,
    RUNNING,
    STATES,
    STOPPED,
    UNKNOWN,
    WAITING,
    RunStatuses,
    Status,
    as_json,
)

if TYPE_CHECKING:  # for which --help does not wait
    from rich.table import Table as RichTable

_TABLES = (*TABLES, "table9")  # whose job has no runs
_HEADINGS = ("run", "state", "job", "updates", "loss", "left", "")
_COLOURS = {DONE: "green", RUNNING: "yellow", FAILED: "red", CANCELLED: "red", WAITING: "cyan"}
_SECONDS = 5.0  # between two updates


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe status",
        description="Show which runs are done, running, waiting (with Slurm's reason), failed "
        "(with the last lines of the log) or interrupted. On a terminal it updates until Ctrl-C.",
    )
    add = parser.add_argument
    text = f"tables to show: {', '.join(_TABLES)} (default: all)"
    add("tables", nargs="*", metavar="TABLE", help=text)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--scale", choices=SCALE_NAMES, help="scale to show (default: all)")
    place.add_argument("--name", metavar="WORD", help="study to show (default: all)")
    add("--all", action="store_true", help="also list the runs that are done")
    add("--once", action="store_true", help="print once, also on a terminal")
    add("--json", action="store_true", help="print everything as JSON")
    return parser


def _read(tables: Sequence[str], place: str | None) -> tuple[list[Status], str]:
    """Return the requested statuses, and why Slurm's queue is not known, if that matters.

    place: scale or study, None for all.
    """
    submitted, problem = read_submissions(ROOT), ""
    queue: dict[str, Queued] | None = None
    try:
        queue = read_queue(ROOT) if submitted else {}
    except NoSlurm as error:
        problem = str(error)
    found = [
        one
        for one in RunStatuses(ROOT, submitted, queue).statuses()
        if (not tables or one.table in tables) and place in (None, one.scale)
    ]
    return found, problem if any(one.state == UNKNOWN for one in found) else ""


def _cells(one: Status) -> list[str]:
    from fairseq_plugins.runner.progress import duration

    updates = "" if one.updates is None else f"{one.updates}/{one.total}"
    if one.updates is not None and one.total is None:
        updates = str(one.updates)
    return [
        f"{one.table} {one.scale} {one.name}",
        one.state,
        str(one.job or ""),
        updates,
        "" if one.loss is None else f"{one.loss:.2f}",
        duration(one.seconds_left) if one.seconds_left is not None else "",
        one.reason if one.reason != "None" else "",
    ]


def _shown(states: Sequence[Status], *, is_all: bool) -> list[Status]:
    """Sort statuses, running ones first; leave out those that are done unless `is_all`."""
    chosen = [one for one in states if is_all or one.state != DONE]
    return sorted(chosen, key=lambda one: STATES.index(one.state))


def _summary(states: Sequence[Status]) -> str:
    if not states:
        return "no runs"
    count = Counter(one.state for one in states)
    others = [f"{count[state]} {state}" for state in STATES if count[state] and state != DONE]
    return ", ".join([f"{count[DONE]} of {len(states)} runs done", *others])


def _complaints(states: Sequence[Status]) -> list[str]:
    lines = []
    for one in states:
        if one.state == FAILED:
            known = (f"{one.table} {one.scale} {one.name}", one.reason, one.log)
            lines += ["", f"FAILED {', '.join(filter(None, known))}{':' if one.lines else ''}"]
            lines += [f"  | {line}" for line in one.lines]
    return lines


def _plain(states: Sequence[Status], problem: str, *, is_all: bool) -> str:
    rows = [_cells(one) for one in _shown(states, is_all=is_all)]
    from fairseq_plugins.common.tables import columns

    lines = [_summary(states)]
    lines += [columns([list(_HEADINGS), *rows], left=2)] if rows else []
    return "\n".join([*lines, *_notes(states, problem), *_complaints(states)])


def _notes(states: Sequence[Status], problem: str) -> list[str]:
    notes = [f"Slurm's queue is not known: {problem}"] if problem else []
    if any(one.state == STOPPED for one in states):
        notes.append("Runs that a stopped command had not begun are unknown and not counted.")
    return notes


def _drawn(states: Sequence[Status], problem: str, room: int, *, is_all: bool) -> "RichTable":
    """Return a table of as many runs as fit; rich must not parse Slurm's brackets as markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    caption = Text("\n".join(_notes(states, problem))) or None
    table = RichTable(title=_summary(states), title_justify="left", caption=caption)
    for heading in _HEADINGS:
        table.add_column(heading)
    for one in _shown(states, is_all=is_all)[:room]:
        table.add_row(*map(Text, _cells(one)), style=_COLOURS.get(one.state))
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fairseq-pe status`; return the exit status, 1 if a run failed."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if unknown := set(args.tables) - set(_TABLES):
        parser.error(f"TABLE must be among {', '.join(_TABLES)}, but is {min(unknown)!r}.")
    states, problem = _read(args.tables, args.scale or args.name)
    if args.json:
        print(as_json(states, problem))
    elif args.once or not sys.stdout.isatty():
        print(_plain(states, problem, is_all=args.all))
    else:
        states = _watch(args, states, problem)
    return 1 if any(one.state == FAILED for one in states) else 0


def _watch(args: argparse.Namespace, states: list[Status], problem: str) -> list[Status]:
    """Redraw until Ctrl-C; return the last statuses."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                room = max(5, console.size.height - 7)
                live.update(_drawn(states, problem, room, is_all=args.all), refresh=True)
                time.sleep(_SECONDS)
                states, problem = _read(args.tables, args.scale or args.name)
        except KeyboardInterrupt:
            pass
    print("\n".join(_complaints(states)))
    return states
