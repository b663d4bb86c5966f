"""Results that came with the repository: shown as what others made, and not made again here."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_plugins.common import provenance
from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.records import results
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import LOCAL
from fairseq_plugins.runner.runner import is_being_replaced

MOST_NAMED = 3


def split_published(
    root: Path, planned: Sequence[PlannedRun]
) -> tuple[list[PlannedRun], list[Result]]:
    """The runs that are not published, and the results of those that are.

    Published are the results in the repository's history as they stand there, of this experiment,
    unless `--force` has begun to replace them.
    """
    folders = {one.run.result.parent for one in planned}
    committed = {p for f in folders for p in provenance.committed(root, f)} if IS_CHECKOUT else ()
    left: list[PlannedRun] = []
    found: list[Result] = []
    for one in planned:
        may_stay = one.run.result in committed and not is_being_replaced(root, one)
        result = _read(root, one) if may_stay else None
        if result is None:
            left.append(one)
        else:
            found.append(result)
    return left, found


def _read(root: Path, planned: PlannedRun) -> Result | None:
    """A run's complete result, if it is of this experiment."""
    result = results.read_result(root / planned.run.result, planned.experiment.metrics)
    if result is None or planned.experiment.lacks(result["metrics"]):
        return None
    data = planned.describe_data(root)
    return None if results.mismatch(result, planned.run, planned.config, data) else result


def describe(published: Sequence[Result], count: int) -> str:
    """Where published results are from, in a line; count: of all runs that were asked for."""
    machines = _most(f"{r['hardware']['cores']} cores of {_device(r)}" for r in published)
    commits = _most(r["commit"].removesuffix("-dirty")[:10] for r in published)
    return (
        f"Published: {len(published)} of {count} runs, made on {machines}, commit {commits}; "
        f"--rerun trains them here, into results/{LOCAL}"
    )


def _device(result: Result) -> str:
    gpus = result["hardware"]["gpus"]
    return (
        f"{result['hardware']['cpu']} with {len(gpus)} {gpus[0]}"
        if gpus
        else (result["hardware"]["cpu"])
    )


def _most(words: Iterable[str]) -> str:
    """The most frequent words, and how many others there are."""
    counted = [word for word, _ in Counter(words).most_common()]
    more = len(counted) - MOST_NAMED
    named = ", ".join(counted[:MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named
