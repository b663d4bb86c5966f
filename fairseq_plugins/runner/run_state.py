"""State of runs from their files: recorded, trained, published or being replaced."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_plugins.common import provenance
from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records import results
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import LOCAL
from fairseq_plugins.runner import checkpoints
from fairseq_plugins.runner.journal import Journal, retention
from fairseq_plugins.runner.run_options import Retention

_MOST_NAMED = 3


def is_being_replaced(root: Path, planned: PlannedRun) -> bool:
    """Return whether `--force` started a run after its result was written and it has not ended."""
    journal = Journal.read(root / planned.run.folder)
    return (
        journal is not None and journal.forced and journal.is_open_after(root / planned.run.result)
    )


def is_recorded(root: Path, planned: PlannedRun) -> bool:
    """Return whether a run has a result with all requested metrics that is not being replaced.

    The result may be of another recipe or other data.
    """
    if is_being_replaced(root, planned):
        return False
    result = results.read_result(root / planned.run.result, planned.experiment.metrics)
    return result is not None and not planned.experiment.lacks(result["metrics"])


def matching_result(
    root: Path, planned: PlannedRun, *, raised: tuple[type[Exception], ...] = ()
) -> Result | None:
    """Read a run's result if it is of the same recipe and data; raised: as of `read_result`."""
    path, metrics = root / planned.run.result, planned.experiment.metrics
    result = results.read_result(path, metrics, raised=raised)
    if result is None or results.mismatch(
        result, planned.run, planned.config, planned.describe_data(root)
    ):
        return None
    return result


def without_untrained(root: Path, planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Leave out runs that measure another run's model before it is trained."""
    return [
        one for one in planned if one.pretraining is None or is_pretrained(root, one.pretraining)
    ]


def is_pretrained(root: Path, planned: PlannedRun) -> bool:
    """Return whether other runs can start from a run: it has its result and its checkpoint.

    In a new clone the result is without a checkpoint, and during a training the best checkpoint is
    without a result.
    """
    return matching_result(root, planned) is not None and _has_model(root, planned, planned.final)


def lacks_checkpoint(root: Path, planned: PlannedRun, keep: Retention | None) -> bool:
    """Return whether a checkpoint that is to be kept, or a file for figures, is missing."""
    folder = root / planned.run.folder
    keep = retention(folder, keep)
    trainings = (t for t in planned.trainings if not t.variant.name or keep == "tuned")
    if not all(_has_model(root, planned, training) for training in trainings):
        return True
    return not all((folder / name).is_file() for name in planned.experiment.leaves)


def _has_model(root: Path, planned: PlannedRun, training: Training) -> bool:
    """Return whether a training has ended and the checkpoint to evaluate is here."""
    folder = root / training.folder
    if not (root / training.checkpoint).exists():
        return False
    if checkpoints.last_was_deleted(folder, training.evaluated):
        journal = Journal.read(root / planned.run.folder)
        return journal is not None and journal.finished
    return checkpoints.has_reached(folder, training.max_update)


def split_published(
    root: Path, planned: Sequence[PlannedRun]
) -> tuple[list[PlannedRun], list[Result]]:
    """Split runs into those to make and the results of those that are published.

    A result is published if it is committed to the repository unchanged, matches the run, and
    `--force` has not begun to replace it.
    """
    folders = {one.run.result.parent for one in planned}
    committed = {p for f in folders for p in provenance.committed(root, f)} if IS_CHECKOUT else ()
    left: list[PlannedRun] = []
    published: list[Result] = []
    for one in planned:
        may_stay = one.run.result in committed and not is_being_replaced(root, one)
        result = matching_result(root, one) if may_stay else None
        if result is None or one.experiment.lacks(result["metrics"]):
            left.append(one)
        else:
            published.append(result)
    return left, published


def describe_published(published: Sequence[Result], count: int) -> str:
    """Describe in one line the machines and commits of published results.

    count: of all requested runs.
    """
    machines = _most_common(f"{r['hardware']['cores']} cores of {_device(r)}" for r in published)
    commits = _most_common(r["commit"].removesuffix("-dirty")[:10] for r in published)
    return (
        f"Published: {len(published)} of {count} runs, made on {machines}, commit {commits}; "
        f"--rerun trains them here, into results/{LOCAL}"
    )


def _device(result: Result) -> str:
    cpu, gpus = result["hardware"]["cpu"], result["hardware"]["gpus"]
    return f"{cpu} with {len(gpus)} {gpus[0]}" if gpus else str(cpu)


def _most_common(words: Iterable[str]) -> str:
    """List the most frequent words, and count the others."""
    return shortened([word for word, _ in Counter(words).most_common()])


def shortened(words: Sequence[str]) -> str:
    """List the first words, and count the others."""
    more = len(words) - _MOST_NAMED
    named = ", ".join(words[:_MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def summary(result: Result) -> str:
    """Format a result's last two columns in one line."""
    numbers = result["metrics"]
    columns = [c for c in TABLES[result["table"]].columns if numbers.get(c.metric) is not None]
    return ", ".join(f"{c.label} {numbers[c.metric]:.{c.digits}f}" for c in columns[-2:])
