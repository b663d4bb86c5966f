"""Worker that trains and measures planned runs: skips done ones and resumes interrupted ones."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fairseq_plugins.common import provenance
from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.locks import Busy
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe_files import NewerResult, write_result
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import checkpoints
from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.journal import Journal
from fairseq_plugins.runner.launcher import get_launchers
from fairseq_plugins.runner.plan import MISSING_TASKS
from fairseq_plugins.runner.progress import DONE, FAILED, PRETRAINING, SKIPPED, Progress
from fairseq_plugins.runner.run_execution import UNWRITTEN, RunContext, RunExecution, RunFailed
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import (
    is_being_replaced,
    is_pretrained,
    is_recorded,
    lacks_checkpoint,
    matching_result,
    shortened,
    summary,
)
from fairseq_plugins.runner.worker_pool import environments


class TableRunner(RunContext):
    """Worker that trains and measures runs, one after another."""

    def warm_up(self) -> None:
        """Start the preloaded process before the first command needs it."""
        nothing = [sys.executable, "-m", "fairseq_plugins.common.errors"]
        self.launcher(nothing, Path(os.devnull), lambda lines: None)

    def run(self, planned: PlannedRun) -> RunFailed | None:
        """Finish one run; return a failure, raise an interruption."""
        try:
            self._run(planned)
            return None
        except RunFailed as error:
            failed = error
        except Busy as busy:
            failed = RunFailed(f"{busy}; wait for it or end it")
        except (OSError, DataError) as error:
            failed = RunFailed(str(error))
        self.progress.change(planned.run.name, FAILED, str(failed))
        return failed

    def _run(self, planned: PlannedRun) -> None:
        if self._is_done(planned):
            return
        if self.options.stage == "take":
            raise RunFailed("the job of the same run in another table has left no result")
        if planned.pretraining:
            self._pretrain(planned.pretraining, planned.run.name)
        with checkpoints.exclusive(self.root / planned.run.folder) as lock:
            if self._is_done(planned):  # by the process that held the lock until now
                return
            forced = self.options.force or is_being_replaced(self.root, planned)
            if forced and MISSING_TASKS in planned.options:
                raise RunFailed(
                    f"an unfinished --force is replacing it; continue that without {MISSING_TASKS}"
                )
            with_metrics = self._with_recorded_metrics(planned)
            execution = RunExecution(self, with_metrics, lock, forced=forced)
            if self.options.stage == "train":
                execution.train_all()
                self.interruption.has_gained = True
                self.progress.change(planned.run.name, DONE, "trained; another job measures it")
                return
            existing = self._recorded(planned) if self.options.missing_checkpoints else None
            note = execution.finish(existing)
            self.progress.change(planned.run.name, DONE, note)

    def _with_recorded_metrics(self, planned: PlannedRun) -> PlannedRun:
        """Return the run with all metrics of its earlier result, which it will replace."""
        path, experiment = self.root / planned.run.result, planned.experiment
        result = results.read_result(path, experiment.metrics)
        if result is None:
            return planned
        return replace(planned, requested=experiment.also_measuring(result["metrics"]))

    def _pretrain(self, planned: PlannedRun, name: str) -> None:
        """Finish the run that run `name` starts from, with its checkpoint.

        In a Slurm job an earlier job has made it, maybe on other GPUs. If it has its result and no
        checkpoint, the first job that needs one trains it.

        Raises RunFailed if it failed, here, in another thread, or in its own job.
        """
        run = planned.run
        if is_pretrained(self.root, planned):
            return
        if self.options.job is not None and not is_recorded(self.root, planned):
            raise RunFailed(f"it starts from {run.table} {run.name}, whose job has left no result")
        if planned.pretraining:
            self._pretrain(planned.pretraining, name)
        self.progress.change(name, PRETRAINING, f"{run.table} {run.name}")
        title = f"pre-training {run.table} {run.name}"

        def say(text: str) -> None:
            if f"process {os.getpid()} " not in text:  # omit waiting for another thread
                self.progress.say(f"{title}: {text}")

        # Others may need it: all seeds of a row, or all rows of a table, start from it.
        pause, failed = self.interruption.pause, self.failed_starts
        with checkpoints.exclusive(self.root / run.folder, say, pause) as lock:
            if run in failed:
                raise failed[run]
            if is_pretrained(self.root, planned):  # by whoever held the lock until now
                return
            try:
                existing = self._recorded(planned)
                forced = is_being_replaced(self.root, planned)
                execution = RunExecution(self, planned, lock, forced=forced, shown_as=title)
                note = execution.finish(existing)
            except RunFailed as error:
                failed[run] = error
                raise
            if existing is not None:
                say(note)

    def _is_done(self, planned: PlannedRun) -> bool:
        if self.options.force:
            journal = Journal.read(self.root / planned.run.folder)
            # A requeued job still has --force, also for the runs that it has finished.
            if not (journal and journal.finished and journal.is_of_job(self.options.job)):
                return False
        result = self._recorded(planned)
        if result is None and not self._copy_from_other_table(planned):
            return False
        if self.options.missing_checkpoints and lacks_checkpoint(
            self.root, planned, self.options.keep
        ):
            return False
        if result is None:
            return True
        note = summary(result)
        is_dirty = any(one.endswith("-dirty") for one in (result["commit"], self.commit))
        if is_dirty and result.get("sources") != self.sources:
            note += "; made by other code, --force trains it again"
        self.progress.change(planned.run.name, SKIPPED, note)
        return True

    def _recorded(self, planned: PlannedRun) -> Result | None:
        """Return the run's complete result, unless it is being replaced.

        Raises RunFailed: the result is of another recipe or other data, or was written by a newer
        version. OSError: it is there, and cannot be read now, so that it must not be replaced.
        """
        run, path, metrics = planned.run, self.root / planned.run.result, planned.experiment.metrics

        def say(text: str) -> None:
            self.progress.say(f"{text}; it is made again")

        unwritten = self._write_unwritten(planned)
        if is_being_replaced(self.root, planned):
            return None
        refused = (OSError, NewerResult)
        try:
            result = unwritten or results.read_result(path, metrics, say, raised=refused)
        except NewerResult as newer:
            raise _written_by_newer_version(run, newer) from None
        if result is None:
            return None
        reasons = results.mismatch(result, run, planned.config, planned.describe_data(self.root))
        if reasons:
            again = f"{typed_command(f'scripts/{run.table}.sh')} --force trains it again"
            if run.study:
                again = "the same command with --force trains it again, another --name keeps it"
            raise RunFailed(
                f"{run.result} was made by another experiment ({'; '.join(reasons)}); {again}"
            )
        if lacks := planned.experiment.lacks(result["metrics"]):
            self.progress.say(f"{run.result}: {lacks}; it is completed")
            return None
        return result

    def _write_unwritten(self, planned: PlannedRun) -> Result | None:
        """Write a result below results/ that an earlier process could not write there."""
        run = planned.run
        path = self.root / run.folder / UNWRITTEN
        try:
            result = results.load_result(path, planned.experiment.metrics)
        except (OSError, ValueError):
            return None
        if results.mismatch(result, run, planned.config, planned.describe_data(self.root)):
            return None
        write_result(self.root / run.result, result)
        path.unlink(missing_ok=True)  # no lock is held yet: another process may do the same
        self.progress.say(
            f"{run.result} was kept in {run.folder / UNWRITTEN}, and is taken from there"
        )
        return result

    def _copy_from_other_table(self, planned: PlannedRun) -> bool:
        """Copy the result of the same run in another table; Tables 2 and 5 share rows.

        A run that `--force` trains again is copied in stage `take` only.

        Raises RunFailed: another table's result was written by a newer version.
        """
        if self.options.stage != "take" and is_being_replaced(self.root, planned):
            return False
        run = planned.run
        own = TABLES[run.table]
        for table, entry in TABLES.items():
            if table == run.table or entry.experiment != own.experiment:
                continue
            other = replace(planned, run=replace(run, table=table))
            try:
                result = matching_result(self.root, other, raised=(NewerResult,))
            except NewerResult as newer:
                raise _written_by_newer_version(other.run, newer) from None
            if result is None or planned.experiment.lacks(result["metrics"]):
                continue
            write_result(self.root / run.result, {**result, "table": run.table})
            self.progress.change(run.name, SKIPPED, f"{summary(result)}, from {table}")
            return True
        return False


def _written_by_newer_version(run: Run, newer: NewerResult) -> RunFailed:
    return RunFailed(
        f"{run.result} was written by a newer version ({newer}), which reads it; --force trains it "
        "again"
    )


@contextmanager
def start_workers(
    root: Path,
    title: str,
    planned: Sequence[PlannedRun],
    options: RunOptions,
    interruption: Interruption,
) -> Iterator[list[TableRunner]]:
    """Start `options.jobs` workers that report their progress and end with the block."""
    gpus, jobs = max((one.devices.gpus for one in planned), default=0), options.jobs
    # Read before training, since files may change meanwhile.
    commit, sources = provenance.commit(root), provenance.sources(root)
    with (
        interruption.on_signals(),
        get_launchers(root, gpus, environments(jobs, gpus)) as launchers,
        Progress(title, [one.run.name for one in planned], jobs) as progress,
    ):
        warn_of_changes(root, commit, progress.say)
        warn_of_other_data(root, planned, progress.say)
        failed: dict[Run, RunFailed] = {}
        yield [
            TableRunner(root, one, progress, interruption, options, commit, sources, failed)
            for one in launchers
        ]


def warn_of_changes(root: Path, commit: str, say: Callable[[str], None]) -> None:
    """Warn, before training, if the code differs from the recorded commit."""
    if not commit.endswith("-dirty"):
        return
    say(
        f"Warning: results are recorded as of {commit[:10]}-dirty, which means commit "
        f"{commit[:10]} and changes that nobody else has (new or changed: "
        f"{shortened(provenance.uncommitted(root))})."
    )


def warn_of_other_data(
    root: Path, planned: Sequence[PlannedRun], say: Callable[[str], None]
) -> None:
    """Warn, before training, if the page will leave out earlier results, which have other data."""
    for one in {one.run.attention: one for one in planned}.values():
        run, folder = one.run, (root / one.run.result).parent
        found = results.read_results(folder, one.experiment.metrics, lambda _: None)
        others = [result for result in found if results.run_of(result) != run]
        newest = results.newest_by_attention(others).get(run.attention)
        if newest is None:
            continue
        try:
            data = one.describe_data(root)
        except DataError:  # each run reports it
            continue
        if data and (folders := provenance.different_folders(newest["data"], data)):
            words = f" ({', '.join(folders)})" if any(folders) else ""
            say(
                f"Warning: {run.name} has other data than {results.run_of(newest).name}{words}; "
                "the page leaves out results whose data differ from the newest one's."
            )
