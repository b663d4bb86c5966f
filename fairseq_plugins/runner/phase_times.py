"""Time that runs spend outside the updates of their trainings."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.tables import columns
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.records.phases import UPDATES, training_phases
from fairseq_plugins.runner.journal import Journal

STARTING, EVALUATION = "start", "evaluation"


def phases_of(root: Path, planned: PlannedRun) -> dict[str, float] | None:
    """Return the seconds of each phase of a run, None if it was not trained here.

    The start is the time of the training commands that is not in their logs.
    """
    journal = Journal.read(root / planned.run.folder / "run.json")
    logs = [root / training.log for training in planned.trainings]
    if journal is None or not all(log.is_file() for log in logs):
        return None
    found: Counter[str] = Counter()
    for log in logs:
        with log.open(errors="replace") as lines:
            found.update(training_phases(lines))
    training, wall = (journal.content[f"{kind}_seconds"] for kind in ("train", "wall"))
    starting = max(0.0, training - sum(found.values()))
    return {STARTING: starting, **found, EVALUATION: wall - training}


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
