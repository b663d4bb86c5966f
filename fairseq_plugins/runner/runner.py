"""Brings the rows of a table to their results: done ones are skipped, cut-off ones go on."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.locks import Busy
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records import results
from fairseq_plugins.records.results import Result
from fairseq_plugins.runner import checkpoints, disk
from fairseq_plugins.runner.attempt import KEPT, Attempt, Context, RunFailed, summary
from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.journal import Journal
from fairseq_plugins.runner.launcher import POLL_SECONDS
from fairseq_plugins.runner.progress import DONE, FAILED, PRETRAINING, SKIPPED


@dataclass(frozen=True)
class Failure:
    """What is told at the end about a run that failed."""

    name: str
    reason: str
    log: Path | None


class Pretrainings:
    """Runs that others start from: each is one thread's at a time, and failed for all of them."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._guard = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._failed: dict[Path, RunFailed] = {}

    @contextmanager
    def alone(self, planned: PlannedRun, wait: Callable[[], None]) -> Iterator[None]:
        """Have a run to this thread; RunFailed where it failed in another one.

        wait: called where another thread has it, which is then waited for.
        """
        path = planned.run.result
        with self._guard:
            lock = self._locks.setdefault(path, threading.Lock())
        if not lock.acquire(blocking=False):
            wait()
            while not lock.acquire(timeout=POLL_SECONDS):
                self._interruption.check()
        try:
            if path in self._failed:
                raise self._failed[path]
            yield
        except RunFailed as failed:
            self._failed[path] = failed
            raise
        finally:
            lock.release()


class TableRunner:
    """Trains and evaluates planned runs, one after another; several may do so side by side.

    pretrainings: shared by those of a table.
    """

    def __init__(self, context: Context, pretrainings: Pretrainings) -> None:
        self._context, self._pretrainings = context, pretrainings
        self.root, self.progress, self.force = context.root, context.progress, context.force

    def warm_up(self) -> None:
        """Start what commands are forked from, before the first one has to wait for it."""
        nothing = [sys.executable, "-m", "fairseq_plugins.common.errors"]
        self._context.launcher(nothing, Path(os.devnull), lambda lines: None)

    def run(self, planned: PlannedRun) -> Failure | None:
        """Bring one run to its result; a failure is returned, an interruption raised."""
        name = planned.run.name
        try:
            self._run(planned)
        except Busy as busy:
            failure = Failure(name, f"{busy}; wait for it or end it", None)
        except RunFailed as failed:
            failure = Failure(name, str(failed), failed.log)
        except (OSError, DataError) as error:
            failure = Failure(name, str(error), None)
        else:
            return None
        self.progress.change(name, FAILED, failure.reason)
        return failure

    def _run(self, planned: PlannedRun) -> None:
        if self._is_done(planned):
            return
        if self._context.stage == "take":
            raise RunFailed("the job of the same run in another table has left no result")
        if planned.pretraining:
            self._check_made(planned.pretraining)
            self._pretrain(planned.pretraining, planned.run.name)
        with checkpoints.exclusive(self.root / planned.run.folder) as lock:
            if self._is_done(planned):  # by the process that held the lock until now
                return
            kept = self._recorded(planned) if self._context.checkpoints else None
            forced = self.force or is_being_replaced(self.root, planned)
            attempt = Attempt(self._context, self._with_what_is_there(planned), lock, forced=forced)
            if self._context.stage == "train":
                with attempt.noting_failure():
                    attempt.train_all()
                self._context.interruption.has_gained = True
                self.progress.change(planned.run.name, DONE, "trained; another job measures it")
                return
            told = self._complete(attempt, kept)
            disk.tidy(self.root, planned, self._context.keep)
            self.progress.change(planned.run.name, DONE, told)

    def _complete(self, attempt: Attempt, kept: Result | None) -> str:
        """Train and measure; the numbers in a line. kept: the result there is, which stays."""
        path = attempt.run.result
        if kept is not None:
            attempt.say(
                f"{path} stays; what it leaves is not here and is made again, which another "
                "machine does not do to the last digit"
            )
        with attempt.noting_failure():
            result = attempt.complete()
            if kept is None:
                attempt.write(result)
                return summary(result)
            attempt.close()
        return f"made again, {summary(result)}; {path} stays, with {summary(kept)}"

    def _with_what_is_there(self, planned: PlannedRun) -> PlannedRun:
        """Measuring too what an earlier result of the same run has, which is replaced."""
        path, experiment = self.root / planned.run.result, planned.experiment
        result = results.read_result(path, experiment.metrics)
        if result is None:
            return planned
        return replace(planned, asked=experiment.with_those_of(result["metrics"]))

    def _check_made(self, planned: PlannedRun) -> None:
        """Refuse to make in a job what an earlier one was to make, perhaps with other GPUs.

        A result without its checkpoint is another matter: the first job that needs it trains it.

        Raises:
            RunFailed: it did not.
        """
        is_made = is_recorded(self.root, planned) or is_pretrained(self.root, planned)
        if self._context.in_job and not is_made:
            run = planned.run
            raise RunFailed(f"it starts from {run.table} {run.name}, whose job has left no result")

    def _pretrain(self, planned: PlannedRun, name: str) -> None:
        """Bring the run that another one starts from to its result and its checkpoint.

        One that failed fails the runs after it at once. name: of the run that is shown.
        """

        def show() -> None:
            self.progress.change(name, PRETRAINING, f"{planned.run.table} {planned.run.name}")

        with self._pretrainings.alone(planned, show):
            if is_pretrained(self.root, planned):
                return
            if planned.pretraining:
                self._pretrain(planned.pretraining, name)
            show()
            self._bring_to_checkpoint(planned)

    def _bring_to_checkpoint(self, planned: PlannedRun) -> None:
        title = f"pre-training {planned.run.table} {planned.run.name}"

        def say(text: str) -> None:
            self.progress.say(f"{title}: {text}")

        # All seeds of a row start from it, and all rows of a table may share one.
        pause = self._context.interruption.pause
        with checkpoints.exclusive(self.root / planned.run.folder, say, pause) as lock:
            if is_pretrained(self.root, planned):  # by the process that held the lock until now
                return
            kept = self._recorded(planned)
            forced = is_being_replaced(self.root, planned)
            attempt = Attempt(self._context, planned, lock, forced=forced, shown_as=title)
            told = self._complete(attempt, kept)
            if kept is not None:
                say(told)

    def _is_done(self, planned: PlannedRun) -> bool:
        if self.force and not self._was_made_in_this_job(planned):
            return False
        result = self._recorded(planned)
        if result is None and not self._take_from_other_table(planned):
            return False
        if self._context.checkpoints and lacks_checkpoint(self.root, planned, self._context.keep):
            return False
        if result is None:
            return True
        self.progress.change(planned.run.name, SKIPPED, summary(result))
        return True

    def _was_made_in_this_job(self, planned: PlannedRun) -> bool:
        """Whether the job that this process is ended a run before it went back into the queue."""
        journal = _journal(self.root, planned)
        return (
            journal is not None
            and bool(journal.content["finished"])
            and journal.is_of_job(self._context.job)
        )

    def _recorded(self, planned: PlannedRun) -> Result | None:
        """The run's complete result that stays, if it is there.

        Raises:
            RunFailed: it is another experiment's.
        """
        run = planned.run

        def say(text: str) -> None:
            self.progress.say(f"{text}; it is made again")

        kept = self._kept(planned)
        if is_being_replaced(self.root, planned):
            return None
        result = kept or results.read_result(
            self.root / run.result, planned.experiment.metrics, say
        )
        if result is None:
            return None
        reasons = results.mismatch(result, run, planned.config, planned.describe_data(self.root))
        if reasons:
            raise RunFailed(
                f"{run.result} was made by another experiment ({'; '.join(reasons[:3])}); "
                f"{as_typed(f'scripts/{run.table}.sh')} --force trains it again"
            )
        if lacks := planned.experiment.lacks(result["metrics"]):
            say(f"{run.result}: {lacks}")
            return None
        return result

    def _kept(self, planned: PlannedRun) -> Result | None:
        """The result that an earlier call could not write below results/; it is written there."""
        run = planned.run
        kept = self.root / run.folder / KEPT
        try:
            result = results.load_result(kept, planned.experiment.metrics)
        except (OSError, ValueError):
            return None
        if results.mismatch(result, run, planned.config, planned.describe_data(self.root)):
            return None
        write_json(self.root / run.result, result)
        kept.unlink(missing_ok=True)  # no lock is held yet: another call may have taken it too
        self.progress.say(f"{run.result} was kept in {run.folder / KEPT}, and is taken from there")
        return result

    def _take_from_other_table(self, planned: PlannedRun) -> bool:
        """Use the same run where another table has it; Tables 2 and 5 share rows.

        Not for a run that `--force` makes anew, unless this is the stage that takes it.
        """
        if self._context.stage != "take" and is_being_replaced(self.root, planned):
            return False
        run = planned.run
        data = planned.describe_data(self.root)
        own = TABLES[run.table]
        for table in (name for name, t in TABLES.items() if t.experiment == own.experiment):
            other = replace(run, table=table)
            result = results.read_result(self.root / other.result, planned.experiment.metrics)
            if result is None or results.mismatch(result, other, planned.config, data):
                continue
            if planned.experiment.lacks(result["metrics"]):
                continue
            write_json(self.root / run.result, {**result, "table": run.table})
            self.progress.change(run.name, SKIPPED, f"{summary(result)}, from {table}")
            return True
        return False


def _journal(root: Path, planned: PlannedRun) -> Journal | None:
    return Journal.read(root / planned.run.folder / "run.json")


def is_being_replaced(root: Path, planned: PlannedRun) -> bool:
    """Whether a call with `--force` began a run after its result, and none ended it since."""
    journal = _journal(root, planned)
    return (
        journal is not None
        and bool(journal.content["forced"])
        and journal.is_open_after(root / planned.run.result)
    )


def is_recorded(root: Path, planned: PlannedRun) -> bool:
    """Whether a run has a complete result with all that is asked for, which stays.

    It may be of another experiment.
    """
    if is_being_replaced(root, planned):
        return False
    result = results.read_result(root / planned.run.result, planned.experiment.metrics)
    return result is not None and not planned.experiment.lacks(result["metrics"])


def with_what_is_trained(root: Path, planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Without the runs that measure a model that is not trained yet."""

    def is_trained(one: PlannedRun) -> bool:
        return one.pretraining is None or is_pretrained(root, one.pretraining)

    return [one for one in planned if is_trained(one)]


def is_pretrained(root: Path, planned: PlannedRun) -> bool:
    """Whether others can start from a run: it has its result, of this experiment, and ended.

    The result may be there without a checkpoint, as in a new clone, and the best checkpoint
    before the training has ended.
    """
    result = results.read_result(root / planned.run.result, planned.experiment.metrics)
    if result is None or results.mismatch(
        result, planned.run, planned.config, planned.describe_data(root)
    ):
        return False
    return _is_left(root, planned, planned.final)


def lacks_checkpoint(root: Path, planned: PlannedRun, keep: disk.Keep) -> bool:
    """Whether a checkpoint that a run leaves, or another file that figures are of, is not here.

    keep: as `tidy` has it.
    """
    trainings = (t for t in planned.trainings if not t.variant.name or keep == "tuned")
    if not all(_is_left(root, planned, training) for training in trainings):
        return True
    folder = root / planned.run.folder
    return not all((folder / name).is_file() for name in planned.experiment.leaves)


def _is_left(root: Path, planned: PlannedRun, training: Training) -> bool:
    """Whether the checkpoint to evaluate is here, of a training that has ended."""
    folder = root / training.folder
    if not (folder / training.evaluated).exists():
        return False
    if checkpoints.was_tidied(folder, training.evaluated):
        journal = _journal(root, planned)
        return journal is not None and bool(journal.content["finished"])
    return checkpoints.has_reached(folder, training.max_update)
