"""Rounds of language models on one text: the trainings of a comparison of encodings."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.root import configs_folder
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.logs import last_lines, read_training_log
from fairseq_plugins.records.runs import Study
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.table_runner import TableRunner
from fairseq_plugins.runner.time_budget import PILOT, PILOT_UPDATES, Settings, Speed
from fairseq_plugins.runner.timed_rounds import IsLate, Watch
from fairseq_plugins.runner.worker_pool import side_by_side

SCALE = "mini"  # whose model it is
LOG_INTERVAL = 10
_SMALL_MODEL = ("model.decoder_layers=1", "dataset.batch_size=4")


def overrides(settings: Settings) -> tuple[str, ...]:
    """Return the changes of a short training to the recipe, the same for all encodings."""
    return (
        f"optimization.max_update={settings.updates}",
        f"lr_scheduler.warmup_updates={max(5, settings.updates // 6)}",
        f"common.log_interval={LOG_INTERVAL}",
        "checkpoint.save_interval_updates=0",
        *(_SMALL_MODEL if settings.is_small else ()),
    )


def plan_round(
    root: Path, rows: Sequence[str], attention: str, study: Study, seeds: Sequence[int]
) -> list[PlannedRun]:
    """Plan the runs of all rows, seed by seed."""
    planned, _ = plan(
        configs_folder(root),
        TABLE_2,
        EXPERIMENTS[TABLE_2.experiment].scales[SCALE],
        Devices(gpus=0),
        rows=rows,
        attentions=[attention],
        seeds=seeds,
        study=study,
    )
    return sorted(planned, key=lambda one: one.run.seed)


@dataclass
class TextRounds:
    """Rounds of a study of Table 2, whose results are in its folders.

    Attributes:
        root: the repository.
        rows: encodings.
        attention: of all of them.
        study: with the settings of the rounds whose results stand.
        workers: train the runs, one after another each.
        watch: ends runs that are late.
        print_numbers: prints a title and the numbers so far.
    """

    root: Path
    rows: Sequence[str]
    attention: str
    study: Study
    workers: Sequence[TableRunner]
    watch: Watch
    print_numbers: Callable[[str, Study], None]
    folders: Sequence[Path] = field(init=False)

    def __post_init__(self) -> None:
        run = self._plan(PILOT, 1)[0].run
        self.folders = [self.root / run.result.parent, self.root / run.folder.parent]

    def pilot(self) -> Speed:
        """Run the pilot, and measure its speed."""
        start = time.monotonic()
        self.run(PILOT, 1, lambda share: False)
        whole = time.monotonic() - start
        slowest = 0.0
        for one in self._plan(PILOT, 1):
            training = one.trainings[-1]
            wps = read_training_log(self.root / training.log).tokens_per_second
            dataset, task = training.config["dataset"], training.config["task"]
            tokens = dataset["batch_size"] * task["tokens_per_sample"]
            slowest = max(slowest, tokens / wps if wps else whole / PILOT_UPDATES)
        waves = -(-len(self.rows) // len(self.workers))  # of runs side by side
        update = waves * slowest
        return Speed(update, max(1.0, whole - PILOT_UPDATES * update))

    def run(self, settings: Settings, seed: int, is_late: IsLate) -> None:
        """Bring the runs of a round to their results.

        Raises:
            WorkError: one failed, with the end of its log.
            TooSlow: the round was given up.
        """
        planned = self._plan(settings, seed)
        self.study = replace(self.study, overrides=overrides(settings))
        runs = self.workers[0].progress.runs
        for one in planned:
            runs[one.run.name].updates = 0

        def share() -> float:
            done = sum(runs[one.run.name].updates for one in planned)
            return done / (settings.updates * len(planned))

        self.watch.is_late = lambda: is_late(share())
        try:
            ended = side_by_side(
                lambda one, worker: worker.run(one), planned, self.workers, self.watch
            )
            for _, failure in ended:
                if failure:
                    said = "\n".join(last_lines(failure.log)) if failure.log else ""
                    raise WorkError(f"{failure.name}: {failure.reason}\n{said}")
        finally:
            self.watch.reset()

    def put_pilot_aside(self) -> None:
        """Move the pilot's files away, or remove those of runs that were given up."""
        for folder, aside in zip(self.folders, self._aside, strict=True):
            if aside.exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(folder, aside)

    def bring_pilot_back(self) -> None:
        """Put the pilot's files in the place of all others."""
        for folder, aside in zip(self.folders, self._aside, strict=True):
            if aside.exists():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.move(aside, folder)
        self.study = replace(self.study, overrides=overrides(PILOT))

    def remove_all(self) -> None:
        """Remove the files of earlier runs."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.remove_aside()

    def remove_aside(self) -> None:
        """Remove the files of a pilot that is no result."""
        shutil.rmtree(self._aside[0].parent, ignore_errors=True)

    def show(self, what: str) -> None:
        """Print the numbers so far."""
        self.print_numbers(what, self.study)

    @property
    def _aside(self) -> list[Path]:
        """Folders for the pilot's results and trainings, beside the trainings."""
        runs = self.folders[1]
        return [runs.with_name(f"{runs.name}.pilot") / name for name in ("results", "runs")]

    def _plan(self, settings: Settings, seed: int) -> list[PlannedRun]:
        study = replace(self.study, overrides=overrides(settings))
        return plan_round(self.root, self.rows, self.attention, study, [seed])
