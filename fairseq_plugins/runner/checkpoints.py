"""Checkpoints of a run: finding one to resume from, checking its model, deleting others."""

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fairseq_plugins.common import locks
from fairseq_plugins.common.checkpoints import (
    BEST,
    LAST,
    DamagedCheckpoint,
    read_checkpoint,
    read_updates,
)
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.files import writing
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.modules.identity import describe, describe_checkpoint, differences
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.records.results import Say
from fairseq_plugins.runner.run_options import Retention

_EARLIER = re.compile(r"checkpoint_(\d+)_(\d+)\.pt")  # epoch, updates


def find_restart(folder: Path, say: Say) -> int:
    """Return the updates of the checkpoint_last.pt that training resumes from, 0 without one.

    Damaged checkpoints are renamed to *.corrupt. If the last one is damaged or missing, the newest
    intact one is copied in its place; a copy, since fairseq overwrites its last one. fairseq copies
    checkpoint_best.pt just before checkpoint_last.pt, so it is checked too: if that copy was cut
    off, training resumes from an older checkpoint and writes it again. If a finished training has
    none left, `require_model` raises an error.
    """
    _intact_updates(folder / BEST, say)
    updates = _intact_updates(folder / LAST, say)
    if updates is not None:
        return updates
    for path in _earlier(folder):
        updates = _intact_updates(path, say)
        if updates is not None:
            with path.open("rb") as intact, writing(folder / LAST) as (last,):
                shutil.copyfileobj(intact, last)
            say(f"going on from {path.name} ({updates} updates)")
            return updates
    if any(folder.glob("*.corrupt")):
        say("no intact checkpoint is left: training starts anew")
    return 0


def has_reached(folder: Path, updates: int) -> bool:
    """Return whether a run's last checkpoint is intact and has at least `updates` updates."""
    try:
        return read_updates(folder / LAST) >= updates
    except CheckpointError:
        return False


def last_was_deleted(folder: Path, evaluated: str) -> bool:
    """Return whether a training's last checkpoint was deleted and the evaluated one kept."""
    return (folder / evaluated).is_file() and not (folder / LAST).exists()


def require_model(path: Path, config: Mapping[str, Any]) -> None:
    """Check that a checkpoint's model is that of a recorded configuration, before it is measured.

    A complete training is not started again, so that nothing else would notice.

    Raises CheckpointError: the file is missing, damaged, or of a model with another setting, which
    the message names with both values.
    """
    checkpoint = read_checkpoint(path)
    if checkpoint.get("cfg") is None and checkpoint.get("args") is None:
        return  # fairseq cannot build a model from it
    require_names(path, checkpoint, [config["model"]["_name"]])
    ours = describe(config["model"], config["task"])
    if differing := differences(describe_checkpoint(path, checkpoint), ours):
        raise CheckpointError(
            f"{path.name} is of another model: it has {differing[0].has}, this run asks for "
            f"{differing[0].asks}"
        )


def _earlier(folder: Path) -> list[Path]:
    """List the checkpoints with numbers of updates in their names, the newest first."""
    matches = [(m, p) for p in folder.glob("*.pt") if (m := _EARLIER.fullmatch(p.name))]
    return [p for m, p in sorted(matches, key=lambda pair: int(pair[0][2]), reverse=True)]


def _intact_updates(path: Path, say: Say) -> int | None:
    if not path.exists():
        return None
    try:
        return read_updates(path)
    except DamagedCheckpoint as damage:
        aside = path.with_name(path.name + ".corrupt")
        os.replace(path, aside)
        say(f"{path.name} is damaged: {damage.reason}; it was moved to {aside.name}")
        return None


def set_aside(folder: Path) -> Path | None:
    """Move a run's folder to <name>.previous, replacing an older one; None without a folder."""
    if not folder.exists():
        return None
    aside = folder.with_name(folder.name + ".previous")
    if aside.exists():
        shutil.rmtree(aside)
    os.replace(folder, aside)
    return aside


def exclusive(
    folder: Path, wait: Say | None = None, pause: Callable[[float], object] = time.sleep
) -> AbstractContextManager[int]:
    """Lock a run for this process, as `locks.exclusive_lock` does.

    The lock file lies beside the folder, which may be moved while it is locked.
    """
    path = folder.with_name(f"{folder.name}.lock")
    return locks.exclusive_lock(path, "this run", wait, pause)


def kept_names(planned: PlannedRun, training: Training, keep: Retention) -> set[str] | None:
    """Return which checkpoints of a measured training to keep, None for all.

    The measured one stays, since other tables may start from it; of one of several trainings it
    stays if another one starts from it or `keep` is `tuned`.
    """
    name = training.variant.name
    if name:
        is_needed = any(t.variant.after == name for t in planned.trainings)
        return {training.evaluated} if is_needed or keep == "tuned" else set()
    if keep == "all":
        return None
    return {training.evaluated, *({LAST} if keep == "last" else ())}


def delete_unkept(root: Path, planned: PlannedRun, training: Training, keep: Retention) -> None:
    """Delete the checkpoints of a measured training that are not to be kept."""
    kept = kept_names(planned, training, keep)
    # The last one at the end: without it a run that is killed here would go on from an earlier one.
    for path in sorted((root / training.folder).glob("*.pt"), key=lambda path: path.name == LAST):
        if kept is not None and path.name not in kept:
            path.unlink()
