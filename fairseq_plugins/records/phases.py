"""Seconds of each phase of a training, from the time stamps in its log."""

import re
from collections.abc import Iterable
from datetime import datetime

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
    found = dict.fromkeys((LOADING, UPDATES, VALIDATION, SAVING), 0.0)
    phase, before = LOADING, None
    for line in lines:
        if not (match := _LINE.match(line)):
            continue
        now, text = datetime.fromisoformat(match[1].replace(",", ".")), match[2]
        mark = next((mark for mark in _MARKS if text.startswith(mark)), None)
        begins = mark is not None and _MARKS[mark] is None
        if before is not None and not begins:
            found[phase] += (now - before).total_seconds()
        if begins:
            phase = LOADING
        elif mark:
            phase = _MARKS[mark] or phase
        elif phase == VALIDATION and '"valid_num_updates"' in text:
            phase = UPDATES
        before = now
    return found
