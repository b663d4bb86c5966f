"""Training and measuring one run, and writing its result."""

import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairseq_plugins.common import provenance
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.files import read_object, write_json
from fairseq_plugins.experiments.base import Metrics, merged
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.records import logs, results
from fairseq_plugins.records.recipe import differences
from fairseq_plugins.records.recipe_files import write_result
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import checkpoints
from fairseq_plugins.runner.interruption import STOP, Interruption, OutOfTime
from fairseq_plugins.runner.journal import JOURNAL, Journal
from fairseq_plugins.runner.launcher import KILLED, Launcher, executable
from fairseq_plugins.runner.plan import MISSING_TASKS
from fairseq_plugins.runner.progress import EVALUATING, Progress
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import summary
from fairseq_plugins.runner.slurm_job import script
from fairseq_plugins.runner.worker_pool import share_of_threads

UNWRITTEN = "result.json"  # in a run's folder: a result that could not be written below results/
MEASURED = "metrics.json"  # in the folder of one of several trainings that is measured


class RunFailed(Exception):
    """A run failed; `log` is the output of the command that failed.

    is_useless: the trained model cannot be measured; trying again would not help.
    """

    def __init__(self, reason: str, log: Path | None = None, *, is_useless: bool = False) -> None:
        super().__init__(reason)
        self.log, self.is_useless = log, is_useless


@dataclass(frozen=True)
class RunContext:
    """The launcher, options and code version that all runs of a command share."""

    root: Path  # folder of results and checkpoints
    launcher: Launcher
    progress: Progress
    interruption: Interruption  # checked wherever a run can stop
    options: RunOptions
    commit: str  # of the running code
    sources: str  # of the running code
    # Of runs that others start from; no worker tries these again.
    failed_starts: dict[Run, RunFailed] = field(default_factory=dict)


class RunExecution:
    """The work of this process on one run, while it holds the run's lock.

    forced: whether it replaces an older result. shown_as: title in messages of a run that the
    progress display does not list, as of a pre-training.
    """

    def __init__(
        self,
        context: RunContext,
        planned: PlannedRun,
        lock: int,
        *,
        forced: bool,
        shown_as: str | None = None,
    ) -> None:
        self.context, self.planned, self.lock = context, planned, lock
        self.root, self.options = context.root, context.options
        self.interruption = context.interruption
        self.run, self.progress = planned.run, context.progress
        self.is_shown, self.title = shown_as is None, shown_as or self.run.name
        self.folder = self.root / self.run.folder
        self.data = planned.describe_data(self.root) or {}
        self.journal = self._open_folder()
        self.journal.study = self.run.located_study(self.root)
        updates = {t.variant.name: t.max_update for t in planned.trainings}
        result = self.root / self.run.result
        self.journal.begin(updates, result, forced=forced, job=self.options.job)
        if shown_as:
            self.progress.say(shown_as)

    def say(self, text: str) -> None:
        self.progress.say(f"{self.title}: {text}")

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Record a failure in the journal at once."""
        try:
            yield
        except (RunFailed, OSError) as error:
            failed = error if isinstance(error, RunFailed) else RunFailed(str(error))
            with suppress(OSError):  # maybe the cause of the failure
                self.journal.fail(str(failed), failed.log, is_useless=failed.is_useless)
            raise

    def train_all(self) -> None:
        """Run all trainings; another job evaluates them."""
        with self._noting_failure():
            for training in self.planned.trainings:
                if self._recorded(training) is None:
                    (self.root / training.folder).mkdir(exist_ok=True)
                    self.train(training)
            self.journal.hardware = self._hardware()
            self.journal.write()

    def _hardware(self) -> dict[str, Any]:
        # A single run has this process's threads.
        threads = share_of_threads(jobs) if (jobs := self.options.jobs) > 1 else None
        return provenance.hardware(self.planned.devices.gpus, threads)

    def finish(self, existing: Result | None) -> str:
        """Train and measure; delete checkpoints, write the result, return its numbers in a line.

        existing: the run's result, which is not replaced.
        """
        path = self.run.result
        if existing is not None:
            self.say(
                f"{path} stays; its checkpoint is not here and is trained again, which on another "
                "machine gives other last digits"
            )
        with self._noting_failure():
            parts = {t.variant.name: self._measured(t) for t in self.planned.measured}
            result = self._result(parts)
            try:
                results.check_result(result, self.planned.experiment.metrics)
            except ValueError as error:
                raise RunFailed(f"its measurements are not a valid result ({error})") from None
            self.journal.finished = True
            self.journal.write()
            # Before the result, with which the run is done: no later call would delete them.
            for training in self.planned.trainings:
                checkpoints.delete_unkept(self.root, self.planned, training, self.journal.keep)
            if existing is None:
                self._write(result)
                return summary(result)
        return f"made again, {summary(result)}; {path} stays, with {summary(existing)}"

    def _open_folder(self) -> Journal:
        """Open the journal of a run to resume, or set its folder aside and begin anew."""
        journal = Journal.read(self.folder)
        reasons = (
            self._reasons_to_start_anew(journal) if journal else [f"its folder had no {JOURNAL}"]
        )
        # --keep is for the runs of the command, not for those that they start from.
        keep = self.options.keep if self.is_shown else None
        if journal and not reasons:
            if keep and keep != journal.keep:
                self.say(f"--keep {keep} replaces --keep {journal.keep}, with which it was begun")
                journal.keep = keep
            return journal
        if self.options.stage == "evaluate":
            raise RunFailed(f"there is no training to measure: {'; '.join(reasons[:3])}")
        if aside := checkpoints.set_aside(self.folder):
            self.say(
                f"starts anew: {'; '.join(reasons[:3])}. The earlier training is in {aside.name}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        return Journal(self.folder, self.planned.config, self.data, keep=keep or "all")

    def _reasons_to_start_anew(self, journal: Journal) -> list[str]:
        reasons = differences(journal.config, self.planned.config)
        if provenance.different_folders(journal.data, self.data):
            reasons.append("the data differs")
        # A requeued job still has --force, for the runs that it has not finished.
        is_forced = self.options.force and not journal.is_of_job(self.options.job)
        if journal.finished and is_forced:
            reasons.append("it is finished and --force was given")
        if journal.useless and is_forced:
            reasons.append("its model cannot be measured and --force was given")
        return reasons

    def _launch(self, command: Sequence[str], log: Path, *, training: bool) -> None:
        """Run a command, adding its time to the journal (RunFailed: it failed)."""
        self.interruption.check()
        stop = log.with_name(STOP)
        stop.unlink(missing_ok=True)
        in_job = self.options.job is not None
        can_save = training and in_job
        last = time.monotonic()

        def on_lines(lines: list[str]) -> None:
            nonlocal last
            now = time.monotonic()
            self.journal.add(now - last, training=training)
            last = now
            self.progress.follow(self.run.name, lines if training and self.is_shown else ())
            if can_save and self.interruption.is_out_of_time:
                stop.touch()
            self.interruption.check(is_saving=can_save)

        words = executable(command, in_job=in_job)
        try:
            status = self.context.launcher(words, log, on_lines, [self.lock])
        finally:
            self.journal.add(time.monotonic() - last, training=training)
            self.journal.write()
            stop.unlink(missing_ok=True)
        if status:
            word = "training" if training else "evaluation"
            why = KILLED if status in (-signal.SIGKILL, 128 + signal.SIGKILL) else ""
            raise RunFailed(f"{word} ended with status {status}{why}", log)

    def _measured(self, training: Training) -> Metrics:
        """Train and measure one training.

        If a run has several, each writes its metrics.json and then deletes its checkpoints.
        """
        if training not in self.planned.trainings:  # it belongs to the run that this starts from
            return self.evaluate(training)
        if (recorded := self._recorded(training)) is not None:
            return recorded
        folder, name = self.root / training.folder, training.variant.name
        path, keep = folder / MEASURED, self.journal.keep
        stays = bool(checkpoints.kept_names(self.planned, training, keep))
        is_there = not stays or (self.root / training.checkpoint).is_file()
        if name and is_there and (recorded := read_object(path)) is not None:
            return recorded
        folder.mkdir(exist_ok=True)
        self.train(training)
        metrics = self.evaluate(training)
        if name:
            write_json(path, metrics)
            checkpoints.delete_unkept(self.root, self.planned, training, keep)
        return metrics

    def _recorded(self, training: Training) -> Metrics | None:
        """Return the metrics that an earlier result of the run has for a training."""
        return self.planned.experiment.recorded(training.variant.name)

    def train(self, training: Training) -> None:
        """Train to the last update, from the newest intact checkpoint."""
        folder = self.root / training.folder
        if training.variant.name:
            self.say(training.variant.name)
        updates, total = checkpoints.find_restart(folder, self.say), training.max_update
        is_tidied = checkpoints.last_was_deleted(folder, training.evaluated)
        if (self.journal.finished and is_tidied) or (total and updates >= total):
            self.say("training is complete already; it is evaluated")
            return
        if self.options.stage == "evaluate":
            raise RunFailed(f"its training ended after {updates} of {total} updates")
        if self.is_shown:
            self.progress.begin_training(self.run.name, updates, total)
        log = self.root / training.log
        with suppress(OutOfTime):  # raised again by the check below
            self._launch(training.command, log, training=True)
        # A training that is out of time must have saved.
        if not self.interruption.is_out_of_time or checkpoints.has_reached(folder, updates + 1):
            self.interruption.has_gained = True
        self.interruption.check()
        asked, used = max(1, self.planned.devices.gpus), logs.read_devices(log)
        if used not in (None, asked):
            raise RunFailed(f"it must train on {asked} devices, but did on {used}", log)

    def evaluate(self, training: Training) -> Metrics:
        """Measure a training (RunFailed: its model is missing or a command failed)."""
        folder, log = self.root / training.folder, self.root / training.log
        if self.is_shown:
            self.progress.change(self.run.name, EVALUATING)
        try:
            checkpoints.require_model(self.root / training.checkpoint, training.config)
            metrics = self.planned.experiment.measure(training, folder)
        except CheckpointError as error:
            again = shlex.join(self._training_again(training))
            raise RunFailed(f"{error}; {again} trains it again", log, is_useless=True) from None
        except (FileNotFoundError, ValueError) as error:
            raise RunFailed(str(error), log) from None
        log_folder = folder if training in self.planned.trainings else self.folder
        for step in self.planned.steps(training):
            log = log_folder / step.log
            log.unlink(missing_ok=True)
            self._launch(step.command, log, training=False)
            try:
                metrics = merged(metrics, step.read(log))
            except ValueError as error:
                raise RunFailed(f"{step.log}: {error}", log) from None
            self.interruption.has_gained = True
        return metrics

    def _training_again(self, training: Training) -> list[str]:
        """Return the command that trains the measured model again."""
        before = self.planned.pretraining
        trained = self.planned if training in self.planned.trainings or before is None else before
        options = [*script(trained.run), *trained.options, "--force"]
        return [option for option in options if option != MISSING_TASKS]

    def _result(self, parts: Mapping[str, Metrics]) -> Result:
        """Return the result, its keys in the order of `ResultSchema`."""
        root, before = self.root, self.planned.pretraining
        own = [t for t in self.planned.measured if self._recorded(t) is None]
        trained = [logs.read_training_log(root / t.log) for t in own]
        metrics = {
            **self.planned.experiment.combine(parts),
            **(before.experiment.start_metrics(before.trainings, root) if before else {}),
            **results.training_metrics(trained, self.journal.train_seconds),
        }
        signature = {"signature": metrics.pop("signature")} if "signature" in metrics else {}
        trainings = (t for t in self.planned.trainings if self._recorded(t) is None)
        curves = {t.variant.name: one for t in trainings if (one := logs.read_curves(root / t.log))}
        result = {
            **self.run.record(),
            "metrics": metrics,
            **signature,
            **({"curves": curves} if curves else {}),
            "command": [*map(provenance.command_line, self.planned.commands())],
            "config": self.planned.config,
            "data": self.data,
            "commit": self.context.commit,
            "sources": self.context.sources,
            "versions": provenance.versions(),
            "hardware": self.journal.hardware or self._hardware(),
            "wall_seconds": round(self.journal.wall_seconds, 1),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if len(own) < len(self.planned.measured):
            earlier = results.load_result(root / self.run.result, self.planned.experiment.metrics)
            try:
                result = results.completed(earlier, result)
            except ValueError as error:
                raise RunFailed(
                    f"{error}; --force in place of {MISSING_TASKS} fine-tunes all tasks"
                ) from None
        return result

    def _write(self, result: Result) -> None:
        """Write the result (RunFailed: it cannot be, and is in the run's folder)."""
        try:
            write_result(self.root / self.run.result, result)
        except OSError as error:
            write_json(self.folder / UNWRITTEN, result)
            raise RunFailed(
                f"{self.run.result} cannot be written ({error.strerror}); the result is in "
                f"{self.run.folder / UNWRITTEN}, and the same command moves it from there"
            ) from None
