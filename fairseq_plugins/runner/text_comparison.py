"""The command `fairseq-pe compare`: train encodings on one text, and show every difference."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.files import short_stem
from fairseq_plugins.common.locks import Busy, exclusive_lock
from fairseq_plugins.common.root import ROOT, configs_folder, data_folder, from_root, root_folder
from fairseq_plugins.data import one_text
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.rows import check_row, runnable_rows
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.logs import last_lines, read_losses, read_training_log
from fairseq_plugins.records.results import load_result, run_of
from fairseq_plugins.records.runs import Run, Study
from fairseq_plugins.report import pairwise_runs
from fairseq_plugins.report.page import Report
from fairseq_plugins.report.pairwise_runs import PairwiseRuns
from fairseq_plugins.runner import table_runner, time_budget
from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.table_runner import TableRunner
from fairseq_plugins.runner.time_budget import PILOT, PILOT_UPDATES, Settings, Speed
from fairseq_plugins.runner.worker_pool import side_by_side

SCALE = "mini"  # of the model
LOG_INTERVAL = 10
_SMALL_MODEL = ("model.decoder_layers=1", "dataset.batch_size=4")
_DATA = "compare-"  # prefix of the names of its data folders


def compare(args: argparse.Namespace) -> None:
    """Compare encodings, or show an earlier comparison; OptionError before any work.

    args: of `fairseq-pe compare`.
    """
    begin, study = time.monotonic(), _planned_study(args)
    report = Report(ROOT, TABLE_2, EXPERIMENTS[TABLE_2.experiment].scales[SCALE], study)
    with _lock(study.name):
        recorded = _recorded(ROOT / report.folder, args)
        shown = _as_recorded(report, recorded[0]) if recorded and not args.force else None
        # A missing half of a pair cannot be added later: its budget of time would be another.
        if shown is not None and _has_pair(recorded, args):
            report = replace(report, study=shown)
            print(
                f"Compared before, in {report.page.with_suffix('')}: --minutes and --seeds are not "
                "used; --force does it anew.\n"
            )
        else:
            report = _train(args, report, begin)
        _show(args, report)
    print(f"Minutes: {(time.monotonic() - begin) / 60:.1f} of {args.minutes:g}")


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Lock a comparison for this process, or raise OptionError if another process has it."""
    path = ROOT / root_folder("checkpoints") / TABLE_2.name / f"{name}.lock"
    try:
        with exclusive_lock(path, "it"):
            yield
    except Busy as busy:
        raise OptionError(
            f"--name must be another one until the comparison {name} has ended: {busy}"
        ) from None


def _planned_study(args: argparse.Namespace) -> Study:
    """Check encodings and name; return the study without its budget."""
    for row in args.encodings:
        check_row(runnable_rows(configs_folder(ROOT)), row, "A, B, ... must be")
    one_text.read_splits(args.text)  # refuses what cannot be split
    stem = short_stem(args.text)
    name = args.name or "-".join([*args.encodings, args.attention, stem])[:64]
    # The digest keeps apart the data, and so the results, of two texts with one name.
    data = data_folder(f"{_DATA}{stem}-{args.merges}-{sha256(args.text)[:8]}")
    study = Study(name, (), from_root(data))
    plan_round(ROOT, args.encodings, args.attention, study, [1])
    return study


def _recorded(results: Path, args: argparse.Namespace) -> list[Run]:
    """Return the comparison's runs with results in its folder.

    Raises OptionError: one belongs to another comparison, or was added to this one, which is made
    anew and would remove it.
    """
    metrics = EXPERIMENTS[TABLE_2.experiment].metrics
    runs = [run_of(load_result(path, metrics)) for path in sorted(results.glob("*.json"))]
    own = [one for one in runs if one.row in args.encodings and one.attention == args.attention]
    may_have_more = not args.force and _has_pair(own, args)
    for run in runs:
        data = run.study.data if run.study is not None else None
        is_of_a_text = data is not None and data.name.startswith(_DATA)
        if not is_of_a_text or not (run in own or may_have_more):
            raise OptionError(
                f"--name must be a new one: in {results.relative_to(ROOT)} is {run.name}, which is "
                f"not of a comparison of {' and '.join(args.encodings)} under {args.attention} "
                "attention"
            )
    return own


def _has_pair(runs: Sequence[Run], args: argparse.Namespace) -> bool:
    """Return whether all encodings have a run of the same seed."""
    seeds = [{run.seed for run in runs if run.row == row} for row in args.encodings]
    return bool(set.intersection(*seeds))


def _as_recorded(report: Report, run: Run) -> Study:
    """Return the study of a recorded run, with this machine's folder of data.

    Raises OptionError: its text or its subwords are others.
    """
    recorded, own = run.study, report.study
    assert own is not None and own.data is not None
    assert recorded is not None and recorded.data is not None
    if recorded.data.name != own.data.name:
        raise OptionError(
            f"--name must be a new one, or --force given: {report.page.with_suffix('')} is of data "
            f"{recorded.data.name}, but --text and --merges make {own.data.name}"
        )
    return replace(recorded, data=own.data)


def _train(args: argparse.Namespace, report: Report, begin: float) -> Report:
    """Prepare the text, run the pilot, and train more rounds until the time is over."""
    study, jobs = report.study, min(2, usable_cores())
    assert study is not None and study.data is not None
    print(_intention(args), flush=True)
    one_text.prepare_one_text(args.text, ROOT / study.data, merges=args.merges, workers=jobs)
    pilot = replace(study, overrides=overrides(PILOT))
    every = range(1, max(args.seeds, time_budget.MOST_SEEDS) + 1)
    planned = plan_round(ROOT, args.encodings, args.attention, pilot, every)

    interruption = Interruption()
    title, options = f"compare, {study.name}", RunOptions(jobs=jobs)
    with table_runner.start_workers(ROOT, title, planned, options, interruption) as workers:
        workers[0].warm_up()
        rounds = TextRounds(report, args.encodings, args.attention, workers, interruption)
        rounds.remove_all()
        deadline = begin + 60 * args.minutes
        workers[0].progress.deadline = deadline
        time_budget.run_rounds(rounds, deadline, args.seeds, partial(print, flush=True))
        rounds.remove_aside()
    return rounds.report


def _intention(args: argparse.Namespace) -> str:
    """Describe the steps of the command, before they begin."""
    return (
        f"Comparing {', '.join(args.encodings)} under {args.attention} attention on "
        f"{args.text.name}, in about {args.minutes:g} minutes: the text is split into subwords; a "
        f"pilot of {PILOT_UPDATES} updates measures this machine; then all encodings "
        f"are trained from the same seeds, with as many updates and seeds (up to {args.seeds}) as "
        "fit. If time runs short, it takes fewer updates, a smaller model or fewer seeds; the "
        "pilot is the least result."
    )


def _show(args: argparse.Namespace, report: Report) -> None:
    """Print the comparison, and write the pages and the pictures."""
    read, runs = report.read(), ROOT / root_folder("checkpoints") / report.table.name / report.name
    for sentence in read.left_out:
        print(f"Left out: {sentence}", file=sys.stderr)
    pairs = compare_results(report, args.encodings, args.attention)
    logs = {
        row: [runs / f"{row}-{args.attention}-s{seed}" / "train.log" for seed in pairs.seeds]
        for row in args.encodings
    }
    losses = {row: [read_losses(log) for log in own if log.is_file()] for row, own in logs.items()}
    report.write()
    name = report.name
    page = (ROOT / report.page).with_name(f"{name}-pairs.md")
    config = read.shown[0]["config"]
    trained = f"{config['optimization']['max_update']} updates each"
    pictures = pairwise_runs.draw(pairs, losses, page.with_suffix(""))
    below = [f"![Training curves and differences]({page.stem}.png)"] if pictures else []
    below += [f"Model, data and all numbers: [{name}.md]({name}.md)."]
    title = f"Comparison `{name}` under {args.attention} attention, {trained}"
    pairs.page(title, *below).write(page)
    print(f"\n{pairs.text()}\n\nTrained for {trained}.")
    written = [ROOT / report.page, page, *pictures]
    print(f"Written: {', '.join(str(from_root(path, ROOT)) for path in written)}")


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
    return pairwise_runs.compare(rows, attention, report.table, read.shown, read.judged.baselines)


@dataclass
class TextRounds:
    """Rounds of a study of Table 2, with results in its folders."""

    report: Report  # with the settings of the present results
    rows: Sequence[str]
    attention: str
    workers: Sequence[TableRunner]
    interruption: Interruption  # ends late runs
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

    def run(self, settings: Settings, seed: int, is_late: Callable[[float], bool]) -> None:
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

        self.interruption.is_late = lambda: is_late(share())
        try:
            ended = side_by_side(
                lambda one, worker: worker.run(one), planned, self.workers, self.interruption
            )
            for one, failed in ended:
                if failed:
                    end = "\n".join(last_lines(failed.log)) if failed.log else ""
                    raise WorkError(f"{one.run.name}: {failed}\n{end}")
        finally:
            self.interruption.reset()

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
