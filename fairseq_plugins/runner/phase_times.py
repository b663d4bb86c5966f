"""Time that runs spend outside the updates of their trainings."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from fairseq_plugins.common.tables import columns
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.runner.journal import Journal

STARTING, EVALUATION = "start", "evaluation"
LOADING, UPDATES, VALIDATION, SAVING = "loading", "updates", "validation", "checkpoints"

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]\[[\w.]+\]\[\w+\] - (.*)")
# Beginning of a line -> the phase after it; None for the first line of a process, so that the time
# before it is not counted.
_MARKS = {
    "{'_name'": None,
    "begin training epoch": UPDATES,
    "begin validation on": VALIDATION,
    "Preparing to save checkpoint": SAVING,
    "Saved checkpoint": UPDATES,
}


def training_phases(lines: Iterable[str]) -> dict[str, float]:
    """Return the seconds of each phase, over all processes of a resumed training.

    Loading is that of model, data and checkpoint. The start of a process, its imports and the
    composition of its configuration are not in the log.
    """
    seconds = dict.fromkeys((LOADING, UPDATES, VALIDATION, SAVING), 0.0)
    phase, before = LOADING, None
    for line in lines:
        if not (match := _LINE.match(line)):
            continue
        now, text = datetime.fromisoformat(match[1].replace(",", ".")), match[2]
        mark = next((mark for mark in _MARKS if text.startswith(mark)), None)
        begins = mark is not None and _MARKS[mark] is None
        if before is not None and not begins:
            seconds[phase] += (now - before).total_seconds()
        if begins:
            phase = LOADING
        elif mark:
            phase = _MARKS[mark] or phase
        elif phase == VALIDATION and '"valid_num_updates"' in text:
            phase = UPDATES
        before = now
    return seconds


def phases_of(root: Path, planned: PlannedRun) -> dict[str, float] | None:
    """Return the seconds of each phase of a run, None if it was not trained here.

    The start is the time of the training commands that is not in their logs.
    """
    journal = Journal.read(root / planned.run.folder)
    logs = [root / training.log for training in planned.trainings]
    if journal is None or not all(log.is_file() for log in logs):
        return None
    seconds: Counter[str] = Counter()
    for log in logs:
        with log.open(errors="replace") as lines:
            seconds.update(training_phases(lines))
    starting = max(0.0, journal.train_seconds - sum(seconds.values()))
    evaluating = journal.wall_seconds - journal.train_seconds
    return {STARTING: starting, **seconds, EVALUATION: evaluating}


def phase_table(root: Path, planned: Sequence[PlannedRun]) -> str:
    """Format the seconds of each phase of the trained runs, and the overhead in % of updates."""
    runs = {one.run.name: phases for one in planned if (phases := phases_of(root, one))}
    if not runs:
        return "No run of these has been trained here."
    total: Counter[str] = Counter()
    for phases in runs.values():
        total.update(phases)
    names = [*total]
    runs["all"] = dict(total)
    rows = [
        [name, *(f"{phases[key]:.1f}" for key in names), _share(phases)]
        for name, phases in runs.items()
    ]
    return columns([["seconds", *names, "overhead"], *rows], left=1)


def _share(phases: dict[str, float]) -> str:
    updates = phases[UPDATES]
    return f"{100 * (sum(phases.values()) - updates) / updates:.0f} %" if updates else "-"
