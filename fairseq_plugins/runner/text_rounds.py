"""The trainings of a comparison of encodings on one text: a pilot, and as many rounds as fit."""

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
from fairseq_plugins.report.page import Report
from fairseq_plugins.report.pairwise_runs import PairwiseRuns, compare
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.table_runner import TableRunner
from fairseq_plugins.runner.time_budget import (
    MOST_SEEDS,
    PATIENCE,
    PILOT,
    PILOT_UPDATES,
    Plan,
    Settings,
    Speed,
    TooSlow,
    Watch,
    fits_another,
    plan_rounds,
)
from fairseq_plugins.runner.worker_pool import side_by_side

Clock = Callable[[], float]
IsLate = Callable[[float], bool]  # from the share of a round that is done

SCALE = "mini"  # of the model
LOG_INTERVAL = 10
_SMALL_MODEL = ("model.decoder_layers=1", "dataset.batch_size=4")


def overrides(settings: Settings) -> tuple[str, ...]:
    """Return the Hydra overrides of a short training, the same for all encodings."""
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


def compare_results(report: Report, rows: Sequence[str], attention: str) -> PairwiseRuns:
    """Compare the results that a report shows."""
    read = report.read()
    return compare(rows, attention, report.table, read.shown, read.judged.baselines)


@dataclass
class TextRounds:
    """Rounds of a study of Table 2, with results in its folders.

    Attributes:
        report: of the study, with the settings of the present results.
        watch: ends late runs.
    """

    report: Report
    rows: Sequence[str]
    attention: str
    workers: Sequence[TableRunner]
    watch: Watch
    folders: Sequence[Path] = field(init=False)

    def __post_init__(self) -> None:
        run, root = self._plan(PILOT, 1)[0].run, self.report.root
        self.folders = [root / run.result.parent, root / run.folder.parent]

    def pilot(self) -> Speed:
        """Run the pilot, and measure its speed."""
        start = time.monotonic()
        self.run(PILOT, 1, lambda share: False)
        whole = time.monotonic() - start
        slowest = 0.0
        for one in self._plan(PILOT, 1):
            training = one.trainings[-1]
            wps = read_training_log(self.report.root / training.log).tokens_per_second
            dataset, task = training.config["dataset"], training.config["task"]
            tokens = dataset["batch_size"] * task["tokens_per_sample"]
            slowest = max(slowest, tokens / wps if wps else whole / PILOT_UPDATES)
        waves = -(-len(self.rows) // len(self.workers))  # of runs side by side
        update = waves * slowest
        return Speed(update, max(1.0, whole - PILOT_UPDATES * update))

    def run(self, settings: Settings, seed: int, is_late: IsLate) -> None:
        """Train and measure the runs of a round.

        Raises:
            WorkError: one failed, with the end of its log.
            TooSlow: the round was stopped.
        """
        planned = self._plan(settings, seed)
        self.report = replace(self.report, study=planned[0].run.study)
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
            for one, failed in ended:
                if failed:
                    end = "\n".join(last_lines(failed.log)) if failed.log else ""
                    raise WorkError(f"{one.run.name}: {failed}\n{end}")
        finally:
            self.watch.reset()

    def put_pilot_aside(self) -> None:
        """Move the pilot's files away, or remove those of a late round if they are away already."""
        for folder, aside in zip(self.folders, self._aside, strict=True):
            if aside.exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(folder, aside)

    def bring_pilot_back(self) -> None:
        """Replace all files by those of the pilot."""
        for folder, aside in zip(self.folders, self._aside, strict=True):
            if aside.exists():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.move(aside, folder)
        self.report = replace(self.report, study=self._plan(PILOT, 1)[0].run.study)

    def remove_all(self) -> None:
        """Remove the files of earlier runs."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.remove_aside()

    def remove_aside(self) -> None:
        """Remove the files of a pilot that was put aside."""
        shutil.rmtree(self._aside[0].parent, ignore_errors=True)

    def show(self, what: str) -> None:
        """Print the numbers so far."""
        pairs = compare_results(self.report, self.rows, self.attention)
        print(f"{what}: {pairs.summary()}", flush=True)

    @property
    def _aside(self) -> list[Path]:
        """Folders for the pilot's results and trainings, beside the trainings."""
        runs = self.folders[1]
        return [runs.with_name(f"{runs.name}.pilot") / name for name in ("results", "runs")]

    def _plan(self, settings: Settings, seed: int) -> list[PlannedRun]:
        assert self.report.study is not None
        study = replace(self.report.study, overrides=overrides(settings))
        return plan_round(self.report.root, self.rows, self.attention, study, [seed])


def run_rounds(
    rounds: TextRounds,
    deadline: float,
    seeds: int,
    say: Callable[[str], None],
    clock: Clock = time.monotonic,
) -> Settings:
    """Run a pilot, then as many rounds as fit; return the settings of the last results.

    At least the results of the pilot remain.

    deadline: of the whole comparison, by the clock. seeds: wanted number of rounds.
    """

    def left() -> float:
        return deadline - clock()

    begin = left()
    speed = rounds.pilot()
    took = begin - left()
    rounds.show(f"So far (pilot of {PILOT.updates} updates, seed 1)")
    plan = plan_rounds(left(), speed, seeds)
    while plan.settings != PILOT:
        say(_describe(plan, speed, left()))
        rounds.put_pilot_aside()
        begin = left()
        slower = _first_round(rounds, plan.settings, speed, left)
        took = begin - left()
        if slower is None:
            rounds.show(f"So far (seed 1 of {plan.seeds})")
            _more_rounds(rounds, plan.settings, seeds, took, left)
            return plan.settings
        say(f"The machine has become {slower:.1f} times slower: the rest is planned anew.")
        speed = speed.times(slower)
        took = speed.seconds(PILOT)
        plan = plan_rounds(left(), speed, seeds)
    rounds.bring_pilot_back()
    if plan.seeds == 1:
        say("There is no time for another round: the pilot is the result.")
    else:
        say(
            f"There is no time for longer runs: planned are {plan.seeds} seeds of {PILOT.updates} "
            "updates, and the pilot is the first of them."
        )
        _more_rounds(rounds, plan.settings, seeds, took, left)
    return PILOT


def _first_round(rounds: TextRounds, settings: Settings, speed: Speed, left: Clock) -> float | None:
    """Run the first round of some settings, unless it turns out that it would end too late.

    Returns:
        None if it has ended; if it was stopped, how many times slower than planned it was.
    """
    begin, planned, done = left(), speed.seconds(settings), 0.0

    def is_late(share: float) -> bool:
        nonlocal done
        done, elapsed = max(share, 1 / settings.updates), begin - left()
        return elapsed > PATIENCE * planned and elapsed / done > begin

    try:
        rounds.run(settings, 1, is_late)
    except TooSlow:
        return max(PATIENCE, (begin - left()) / planned / done)
    return None


def _more_rounds(
    rounds: TextRounds, settings: Settings, seeds: int, first: float, left: Clock
) -> None:
    """Run rounds from seed 2 on while another one fits; a late one is stopped."""
    times = [first]
    while fits_another(left(), times, seeds):
        begin = left()
        try:
            rounds.run(settings, len(times) + 1, lambda share: left() < 0)
        except TooSlow:
            return
        times.append(begin - left())


def _describe(plan: Plan, speed: Speed, left: float) -> str:
    """Describe the plan, and the speed that it follows from."""
    settings = plan.settings
    text = (
        f"An update takes {speed.update:.2f} s of all encodings together. Planned for the "
        f"{left / 60:.1f} minutes that are left: {plan.seeds} seeds (at most {MOST_SEEDS} if time "
        f"remains), {settings.updates} updates each"
    )
    if settings.is_small:
        text += "; the machine is slow, so that the model has one layer and half the batch"
    return f"{text}."
