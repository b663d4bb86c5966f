"""From which checkpoint a run goes on: damaged files are noticed, said and moved aside."""

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
from fairseq_plugins.modules.identity import describe, describe_checkpoint, differences
from fairseq_plugins.modules.loading import require_names

_EARLIER = re.compile(r"checkpoint_(\d+)_(\d+)\.pt")  # epoch, updates

Say = Callable[[str], None]


def find_restart(folder: Path, say: Say) -> int:
    """The updates of the checkpoint_last.pt that training goes on from, 0 where it starts anew.

    Damaged checkpoints become *.corrupt. Where the last one is damaged or missing, the newest
    intact one before it takes its place: as a copy, since fairseq writes over its last one.
    checkpoint_best.pt is checked too, as it is copied in the moment before checkpoint_last.pt:
    where it was cut off, the checkpoint gone on from is older and training writes it again. Where
    none is left of a training that has ended, `require_model` refuses to measure another one.
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
    """Whether a run's last checkpoint is intact and of that update or a later one."""
    try:
        return read_updates(folder / LAST) >= updates
    except CheckpointError:
        return False


def was_tidied(folder: Path, evaluated: str) -> bool:
    """Whether of a training the checkpoint to evaluate was kept and the last one removed."""
    return (folder / evaluated).is_file() and not (folder / LAST).exists()


def require_model(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse to evaluate a checkpoint of another model than the one that a training makes.

    A training that is complete is not started again, so that nothing else would notice.

    Args:
        path: of the checkpoint.
        config: the training's, as it is recorded.

    Raises:
        CheckpointError: missing, damaged, or of another model, with what each has.
    """
    checkpoint = read_checkpoint(path)
    if checkpoint.get("cfg") is None and checkpoint.get("args") is None:
        return  # fairseq builds nothing from one that does not say what
    require_names(path, checkpoint, [config["model"]["_name"]])
    ours = describe(config["model"], config["task"])
    if found := differences(describe_checkpoint(path, checkpoint), ours):
        raise CheckpointError(
            f"{path.name} is of another model: it has {found[0].has}, this run asks for "
            f"{found[0].asks}"
        )


def _earlier(folder: Path) -> list[Path]:
    found = [(m, p) for p in folder.glob("*.pt") if (m := _EARLIER.fullmatch(p.name))]
    return [p for m, p in sorted(found, key=lambda pair: int(pair[0][2]), reverse=True)]


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
    """Move a run's folder to <name>.previous, in place of an older one; None if there is none."""
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
    """Hold a run for this process, as `locks.exclusive` does.

    The lock file lies beside the folder, which may be moved while it is held.
    """
    path = folder.with_name(f"{folder.name}.lock")
    return locks.exclusive(path, "this run", wait, pause)
