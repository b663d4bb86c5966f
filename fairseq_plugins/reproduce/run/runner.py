"""Runs the rows of a table one after another: done ones are skipped, cut-off ones go on."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common import provenance
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.provenance import describe_all, missing_data
from fairseq_plugins.papers import TABLES
from fairseq_plugins.reproduce.experiments.base import Metrics, Training
from fairseq_plugins.reproduce.record import logs, results
from fairseq_plugins.reproduce.record.results import Result
from fairseq_plugins.reproduce.run import checkpoints
from fairseq_plugins.reproduce.run.commands import Run, executable
from fairseq_plugins.reproduce.run.launcher import Launcher
from fairseq_plugins.reproduce.run.plan import Planned
from fairseq_plugins.reproduce.run.progress import DONE, EVALUATING, FAILED, SKIPPED, Progress

MEASURED = "metrics.json"  # in the folder of one of several trainings: it is done
JOURNAL_SECONDS = 5.0  # at most this much time is not counted when a run is killed


class RunFailed(Exception):
    """A run that could not be finished; `log` holds what its command said."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.log = log


@dataclass(frozen=True)
class Failure:
    """What is told at the end about a run that failed."""

    name: str
    reason: str
    log: Path | None


class Journal:
    """A run's run.json: what it trains, and the seconds it took over all its stretches."""

    def __init__(self, path: Path, config: dict[str, Any], data: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "config": config,
            "data": data,
            "train_seconds": 0.0,
            "wall_seconds": 0.0,
            "finished": False,
        }
        self._written = time.monotonic()

    @classmethod
    def read(cls, path: Path) -> "Journal | None":
        """The journal in a file; None where there is none or it is damaged."""
        try:
            content = json.loads(path.read_text())
            journal = cls(path, content["config"], content["data"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        journal.content = {**journal.content, **content}
        return journal

    def add(self, seconds: float, *, training: bool) -> None:
        """Count time; the file follows every few seconds."""
        self.content["wall_seconds"] += seconds
        if training:
            self.content["train_seconds"] += seconds
        if time.monotonic() - self._written > JOURNAL_SECONDS:
            self.write()

    def write(self) -> None:
        write_json(self.path, self.content)
        self._written = time.monotonic()


class TableRunner:
    """Trains and evaluates planned runs.

    root: the repository. force: re-run what is done.
    """

    def __init__(
        self,
        root: Path,
        launcher: Launcher,
        progress: Progress,
        *,
        force: bool = False,
    ) -> None:
        self.root = root
        self.launcher = launcher
        self.progress = progress
        self.force = force
        # Now: what runs is the code of this moment.
        self.commit, self.sources = provenance.commit(root), provenance.sources(root)
        self._failed: dict[Path, RunFailed] = {}  # runs that others start from

    def run(self, planned: Planned) -> Failure | None:
        """Bring one run to its result; a failure is returned, an interruption raised."""
        name = planned.run.name
        try:
            self._run(planned)
        except checkpoints.RunIsBusy as busy:
            failure = Failure(name, f"{busy}; wait for it or end it", None)
        except RunFailed as failed:
            failure = Failure(name, str(failed), failed.log)
        except OSError as error:
            failure = Failure(name, str(error), None)
        else:
            return None
        self.progress.change(name, FAILED, failure.reason)
        return failure

    def _run(self, planned: Planned) -> None:
        if self._is_done(planned):
            return
        if planned.pretraining:
            self._pretrain(planned.pretraining)
        with checkpoints.exclusive(self.root / planned.run.folder) as lock:
            if self._is_done(planned):  # by the process that held the lock until now
                return
            attempt = _Attempt(self, planned, lock)
            attempt.complete()
            self.progress.change(planned.run.name, DONE, attempt.summary())

    def _pretrain(self, planned: Planned) -> None:
        """Bring the run that another one starts from to its result and its checkpoint.

        One that failed fails the runs after it at once.
        """
        path = planned.run.result
        try:
            if path in self._failed:
                raise self._failed[path]
            self._bring_to_checkpoint(planned)
        except RunFailed as failed:
            self._failed[path] = failed
            raise

    def _bring_to_checkpoint(self, planned: Planned) -> None:
        title = f"pre-training {planned.run.table} {planned.run.name}"

        def say(text: str) -> None:
            self.progress.say(f"{title}: {text}")

        if is_pretrained(self.root, planned):
            return
        if planned.pretraining:
            self._pretrain(planned.pretraining)
        # All seeds of a row start from it, and all rows of a table may share one.
        with checkpoints.exclusive(self.root / planned.run.folder, wait=say) as lock:
            if is_pretrained(self.root, planned):  # by the process that held the lock until now
                return
            is_recorded = self._recorded(planned) is not None
            attempt = _Attempt(self, planned, lock, shown_as=title)
            if is_recorded:
                say(
                    f"{planned.run.result} stays; its checkpoint is not here and is trained again, "
                    "which another machine does not do to the last digit"
                )
            attempt.complete(write=not is_recorded)

    def _is_done(self, planned: Planned) -> bool:
        if self.force:
            return False
        result = self._recorded(planned)
        if result is None:
            if (self.root / planned.run.result).exists():
                self.progress.say(
                    f"{planned.run.result} is not a complete result; it is made again"
                )
            return self._take_from_other_table(planned)
        self.progress.change(planned.run.name, SKIPPED, _told(result))
        return True

    def _recorded(self, planned: Planned) -> Result | None:
        """The run's complete result, if it is there; RunFailed where it is another experiment's."""
        run = planned.run
        result = results.read_result(self.root / run.result)
        if result is None:
            return None
        reasons = results.mismatch(result, run, planned.config, data_of(self.root, planned))
        if reasons:
            raise RunFailed(
                f"{run.result} was made by another experiment ({'; '.join(reasons[:3])}); "
                f"scripts/{run.table}.sh --force trains it again"
            )
        return result

    def _take_from_other_table(self, planned: Planned) -> bool:
        """Use the same run where another table has it; Tables 2 and 5 share rows."""
        run = planned.run
        data = data_of(self.root, planned)
        own = TABLES[run.table]
        for table in (name for name, t in TABLES.items() if t.experiment == own.experiment):
            other = Run(table, run.scale, run.row, run.attention, run.seed)
            result = results.read_result(self.root / other.result)
            if result is None or results.mismatch(result, other, planned.config, data):
                continue
            write_json(self.root / run.result, {**result, "table": run.table})
            self.progress.change(run.name, SKIPPED, f"{_told(result)}, from {table}")
            return True
        return False


def is_pretrained(root: Path, planned: Planned) -> bool:
    """Whether others can start from a run: it has its result, of this experiment, and ended.

    The result may be there without a checkpoint, as in a new clone, and the best checkpoint
    before the training has ended.
    """
    result = results.read_result(root / planned.run.result)
    if result is None or results.mismatch(
        result, planned.run, planned.config, data_of(root, planned)
    ):
        return False
    (training,) = planned.trainings
    folder = root / training.folder
    return (folder / training.evaluated).exists() and checkpoints.has_reached(
        folder, training.max_update
    )


def data_of(root: Path, planned: Planned) -> dict[str, Any] | None:
    """The description of a run's data, or None where it is not all there."""
    folders = {folder.as_posix(): root / folder for folder in planned.data}
    if missing_folders(root, planned):
        return None
    return describe_all(folders)


@dataclass(frozen=True)
class Missing:
    """A folder of data that lacks files, and the commands that make it."""

    folder: Path
    files: list[str]
    prepare: tuple[str, ...]


def missing_folders(root: Path, planned: Planned) -> list[Missing]:
    """What a run's folders of data lack, those of its pre-training first."""
    found = missing_folders(root, planned.pretraining) if planned.pretraining else []
    for folder in dict.fromkeys(training.data for training in planned.trainings):
        if files := missing_data(root / folder, planned.experiment.data_files):
            found.append(Missing(folder, files, planned.prepare))
    return found


def _told(result: Result) -> str:
    """The numbers of a result for one line."""
    numbers = result["metrics"]
    columns = [c for c in TABLES[result["table"]].columns if numbers.get(c.metric) is not None]
    return ", ".join(f"{c.label} {numbers[c.metric]:.{c.digits}f}" for c in columns[-2:])


class _Attempt:
    """One run in this process, while its lock is held.

    shown_as: what is said of it, where it is another run that is shown.
    """

    def __init__(
        self, runner: TableRunner, planned: Planned, lock: int, shown_as: str | None = None
    ) -> None:
        self.runner, self.planned, self.lock = runner, planned, lock
        self.run, self.progress = planned.run, runner.progress
        self.is_shown = shown_as is None
        self.title = shown_as or self.run.name
        self.folder = runner.root / planned.run.folder
        self.data = data_of(runner.root, planned) or {}
        self.journal = self._open_folder()
        self.result: Result | None = None
        if shown_as:
            self.progress.say(shown_as)

    def say(self, text: str) -> None:
        self.progress.say(f"{self.title}: {text}")

    def summary(self) -> str:
        return _told(self.result) if self.result else ""

    def complete(self, *, write: bool = True) -> None:
        """Train and measure everything; `write` the result."""
        parts = {t.variant.name: self._measured(t) for t in self.planned.measured}
        if write:
            self.write(parts)

    def _open_folder(self) -> Journal:
        """The journal of a run to go on with; anything else in the folder is set aside."""
        path = self.folder / "run.json"
        journal = Journal.read(path)
        if journal:
            reasons = results.differences(journal.content["config"], self.planned.config)
            if not results.provenance.same_data(journal.content["data"], self.data):
                reasons.append("the data differs")
            if journal.content["finished"] and self.runner.force:
                reasons.append("it is finished and --force was given")
            if not reasons:
                return journal
            aside = checkpoints.set_aside(self.folder)
            self.say(
                f"starts anew: {'; '.join(reasons[:3])}. "
                f"The earlier training is in {aside.name if aside else ''}"
            )
        else:
            aside = checkpoints.set_aside(self.folder)
            if aside:
                self.say(f"starts anew: its folder had no run.json; it is now {aside.name}")
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(path, self.planned.config, self.data)
        journal.write()
        return journal

    def _launch(self, command: Sequence[str], log: Path, *, training: bool) -> None:
        """Run a command, counting its time; RunFailed where it fails."""
        last = time.monotonic()

        def on_lines(lines: list[str]) -> None:
            nonlocal last
            now = time.monotonic()
            self.journal.add(now - last, training=training)
            last = now
            for line in lines:
                measured = logs.read_training(line) if training and self.is_shown else None
                if measured:
                    self.progress.train(self.run.name, measured.updates, measured.loss)
            self.progress.refresh()

        try:
            status = self.runner.launcher(executable(command), log, on_lines, [self.lock])
        finally:
            self.journal.add(time.monotonic() - last, training=training)
            self.journal.write()
        if status:
            word = "training" if training else "evaluation"
            raise RunFailed(f"{word} ended with status {status}", log)

    def _measured(self, training: Training) -> Metrics:
        """The metrics of one training; of several, each keeps its own in metrics.json, and its
        checkpoints only as long as they are needed."""
        if training not in self.planned.trainings:  # of the run that this one starts from
            return self.evaluate(training)
        folder = self.runner.root / training.folder
        kept = folder / MEASURED
        if training.variant.name and (found := _read_metrics(kept)) is not None:
            return found
        folder.mkdir(exist_ok=True)
        self.train(training)
        metrics = self.evaluate(training)
        if training.variant.name:
            write_json(kept, metrics)
            for checkpoint in folder.glob("*.pt"):
                checkpoint.unlink()
        return metrics

    def train(self, training: Training) -> None:
        """Train until the last update, from the newest intact checkpoint."""
        folder = self.runner.root / training.folder
        if training.variant.name:
            self.say(training.variant.name)
        restart = checkpoints.find_restart(folder, self.say)
        total = training.max_update
        if total and restart.updates >= total:
            self.say("training is complete already; it is evaluated")
            return
        if self.is_shown:
            self.progress.begin_training(self.run.name, restart.updates, total)
        restore = restart.restore and training.folder / restart.restore.name
        self._launch(training.command(restore), folder / "train.log", training=True)

    def evaluate(self, training: Training) -> Metrics:
        """What is measured of a training."""
        folder, experiment = self.runner.root / training.folder, self.planned.experiment
        if self.is_shown:
            self.progress.change(self.run.name, EVALUATING)
        log = folder / "train.log"
        try:
            chosen = checkpoints.checkpoint_to_evaluate(folder, training.evaluated, self.say)
            metrics = experiment.measure(training, folder)
        except (FileNotFoundError, ValueError) as error:
            raise RunFailed(str(error), log) from None
        checkpoint, gpus = training.folder / chosen.name, self.planned.place.gpus
        own = folder if training in self.planned.trainings else self.folder
        for step in experiment.steps(training, checkpoint, self.run, gpus):
            log = own / step.log
            log.unlink(missing_ok=True)
            self._launch(step.command, log, training=False)
            try:
                metrics = _merged(metrics, step.read(log))
            except ValueError as error:
                raise RunFailed(f"{step.log}: {error}", log) from None
        return metrics

    def write(self, parts: Mapping[str, Metrics]) -> None:
        """Write the result and close the journal."""
        root, times = self.runner.root, self.journal.content
        trained = [
            logs.read_training_log(root / training.folder / "train.log")
            for training in self.planned.measured
        ]
        self.result = results.make_result(
            self.run,
            metrics={
                **self.planned.experiment.combine(parts),
                **results.training_metrics(trained, times["train_seconds"]),
            },
            command=[shlex.join(words) for words in self.planned.commands()],
            config=self.planned.config,
            data=self.data,
            gpus=self.planned.place.gpus,
            wall_seconds=times["wall_seconds"],
            commit=self.runner.commit,
            sources=self.runner.sources,
        )
        write_json(root / self.run.result, self.result)
        self.journal.content["finished"] = True
        self.journal.write()


def _merged(one: Metrics, other: Metrics) -> Metrics:
    """Both, dictionaries in both merged."""
    found = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            found[key] = {**one[key], **other[key]}
    return found


def _read_metrics(path: Path) -> Metrics | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
