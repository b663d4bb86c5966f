"""``fairseq-pe compare A B --text FILE --minutes N``: two encodings on a text, with an interval."""

import argparse
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    ROOT,
    add_places,
    configs_folder,
    data_folder,
    from_root,
    put_places,
)
from fairseq_plugins.data.options import check_at_least

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.experiments.planned import PlannedRun
    from fairseq_plugins.records.runs import Run, Study
    from fairseq_plugins.report.page import Report
    from fairseq_plugins.runner.interruption import Interruption
    from fairseq_plugins.runner.table_runner import TableRunner
    from fairseq_plugins.runner.time_budget import Speed

ATTENTIONS = ("vanilla", "linear")
SCALE = "mini"  # whose model it is
TRIAL_UPDATES = 20
LOG_INTERVAL = 10
_DATA = "compare-"  # begins the names of its folders of data


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe compare",
        description="Train small language models with two position encodings on a text, from the "
        "same seeds, within some minutes on a CPU, and say how far apart they are and how sure "
        "that is.",
        epilog="The runs are a study of Table 2: results/table2/<name>.md has every number, and "
        "`fairseq-pe table table2 --name <name>` adds rows and seeds to it.",
    )
    add = parser.add_argument
    add("first", metavar="A", help="an encoding, or a row of configs/model")
    add("second", metavar="B", help="the other one")
    add("--text", type=Path, required=True, metavar="FILE", help="UTF-8, plain, .xz or .gz")
    add("--minutes", type=float, default=10.0, metavar="N", help="for all of it (default: 10)")
    add("--attention", choices=ATTENTIONS, default="vanilla", help="(default: vanilla)")
    text = "pairs of runs; more where time is left, fewer where it is short (default: 5)"
    add("--seeds", type=int, default=5, metavar="N", help=text)
    text = "of the pieces that are learned from the text (default: 500)"
    add("--merges", type=int, default=500, metavar="N", help=text)
    add("--name", metavar="WORD", help="of its folder (default: A-B-attention-FILE)")
    add("--force", action="store_true", help="make anew what was compared before")
    add_places(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; the exit status: 2 where nothing was started, 130 for Ctrl-C."""
    begin = time.monotonic()
    parser = get_parser()
    args = parser.parse_args(argv)
    put_places(args)
    logging.disable(logging.INFO)  # of the libraries; this program prints
    try:
        study = _checked(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    try:
        return exit_status(args.program, lambda: _run(args, study, begin))
    except KeyboardInterrupt:
        print("\nStopped. The same command shows the pairs that were finished, or starts anew.")
        return 130


def _checked(args: argparse.Namespace) -> "Study":
    """Refuse what cannot be before any work; the study without its budget."""
    if args.first == args.second:
        raise OptionError(f"A and B must differ, but both are {args.first!r}")
    if not 0.5 <= args.minutes <= 24 * 60:
        raise OptionError(f"--minutes must be from 0.5 to 1440, but is {args.minutes:g}")
    if args.seeds < 2:
        raise OptionError(f"--seeds must be at least 2, but is {args.seeds}")
    if not args.text.is_file():
        raise OptionError(f"--text must be a file, but is {args.text}")
    check_at_least(1, merges=args.merges)
    from fairseq_plugins.cli.table_options import study_name
    from fairseq_plugins.data.measure import sha256
    from fairseq_plugins.experiments.rows import check_row, runnable_rows
    from fairseq_plugins.records.runs import Study

    for letter, row in (("A", args.first), ("B", args.second)):
        check_row(runnable_rows(configs_folder(ROOT)), row, f"{letter} must be")
    stem = re.sub(r"[^A-Za-z0-9]+", "_", args.text.name.partition(".")[0])[:20]
    name = args.name or f"{args.first}-{args.second}-{args.attention}-{stem}"
    try:
        study_name(name)
    except argparse.ArgumentTypeError as error:
        raise OptionError(str(error)) from None
    # Two texts of one name have two folders, by which their results are told apart.
    data = data_folder(f"{_DATA}{stem}-{args.merges}-{sha256(args.text)[:8]}")
    study = Study(name, (), from_root(data))
    _plan(args, study, [1])
    return study


def _plan(args: argparse.Namespace, study: "Study", seeds: Sequence[int]) -> "list[PlannedRun]":
    """The pair of each seed, one after the other."""
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.papers.lrpe import TABLE_2
    from fairseq_plugins.runner.plan import plan

    planned, _ = plan(
        configs_folder(ROOT),
        TABLE_2,
        EXPERIMENTS[TABLE_2.experiment].scales[SCALE],
        Devices(gpus=0),
        rows=_rows(args),
        attentions=[args.attention],
        seeds=seeds,
        study=study,
    )
    return sorted(planned, key=lambda one: one.run.seed)


def _run(args: argparse.Namespace, study: "Study", begin: float) -> None:
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.papers.lrpe import TABLE_2
    from fairseq_plugins.report.page import Report

    report = Report(ROOT, TABLE_2, EXPERIMENTS[TABLE_2.experiment].scales[SCALE], study)
    results, runs = ROOT / report.page.with_suffix(""), _plan(args, study, [1])[0].run.folder.parent
    recorded = _recorded(results, args)
    shown = _as_recorded(report, recorded[0]) if recorded and not args.force else None
    seeds = [{run.seed for run in recorded if run.row == row} for row in _rows(args)]
    # Half a pair has the budget of a time that is over, which the other half would not have.
    if args.force or not set.intersection(*seeds):
        shutil.rmtree(results, ignore_errors=True)
        shutil.rmtree(ROOT / runs, ignore_errors=True)
        shown = None
    if shown is not None:
        report = replace(report, study=shown)
        print(f"Compared before, in {report.page.with_suffix('')}; --force does it anew.\n")
    else:
        report = _train(args, report, begin)
    _show(args, report, ROOT / runs)
    print(f"Minutes: {(time.monotonic() - begin) / 60:.1f} of {args.minutes:g}")


def _rows(args: argparse.Namespace) -> tuple[str, str]:
    return args.first, args.second


def _recorded(results: Path, args: argparse.Namespace) -> "list[Run]":
    """The runs that have results in a comparison's folder.

    Raises:
        OptionError: it has something else, which is not to be shown, or made anew, as this.
    """
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.papers.lrpe import TABLE_2
    from fairseq_plugins.records.results import load_result, run_of

    metrics = EXPERIMENTS[TABLE_2.experiment].metrics
    found = [run_of(load_result(path, metrics)) for path in sorted(results.glob("*.json"))]
    for run in found:
        data = run.study.data if run.study is not None else None
        is_own = data is not None and data.name.startswith(_DATA)
        if not is_own or run.row not in _rows(args) or run.attention != args.attention:
            raise OptionError(
                f"--name must be a new one: in {results.relative_to(ROOT)} is {run.name}, which is "
                f"not of a comparison of {' and '.join(_rows(args))} under {args.attention} "
                "attention"
            )
    return found


def _as_recorded(report: "Report", run: "Run") -> "Study":
    """The study as a result has it, and the folder of data that is known here.

    Raises:
        OptionError: it is of another text, or of other pieces.
    """
    found, own = run.study, report.study
    assert own is not None and own.data is not None and found is not None and found.data is not None
    if found.data.name != own.data.name:
        raise OptionError(
            f"--name must be a new one, or --force given: {report.page.with_suffix('')} is of data "
            f"{found.data.name}, but --text and --merges make {own.data.name}"
        )
    return replace(found, data=own.data)


def _train(args: argparse.Namespace, report: "Report", begin: float) -> "Report":
    """Prepare the text, try the speed, and train pairs until the time is over."""
    from fairseq_plugins.common.cpu import usable_cores
    from fairseq_plugins.data.one_text import prepare_one_text
    from fairseq_plugins.runner import time_budget
    from fairseq_plugins.runner.interruption import Interruption
    from fairseq_plugins.runner.run_options import RunOptions
    from fairseq_plugins.runner.table_run import start_workers

    deadline, study = begin + 60 * args.minutes, report.study
    assert study is not None and study.data is not None
    jobs = min(2, usable_cores())
    prepare_one_text(args.text, ROOT / study.data, merges=args.merges, workers=jobs)
    trial = replace(study, name=f"{study.name}.trial", overrides=_settings(TRIAL_UPDATES))
    pair = _plan(args, trial, [1])
    every = list(range(1, max(args.seeds, time_budget.MOST_SEEDS) + 1))
    names = [*pair, *_plan(args, replace(study, overrides=_settings(TRIAL_UPDATES)), every)]
    interruption = Interruption()
    title, options = f"compare, {study.name}", RunOptions(jobs=jobs)
    with start_workers(ROOT, title, names, options, interruption) as runners:
        runners[0].warm_up()
        speed = _speed(pair, lambda: _side_by_side(pair, runners, interruption))
        left = deadline - time.monotonic()
        try:
            share = time_budget.share(left, speed, args.seeds)
        except ValueError as error:  # which only the trial could tell
            raise WorkError(str(error)) from None
        print(
            f"{share.seeds} pairs of runs of {share.updates} updates in the {left / 60:.1f} "
            f"minutes that are left; an update takes {speed.update:.2f} s",
            flush=True,
        )
        study = replace(study, overrides=_settings(share.updates))
        times: list[float] = []
        for seed in every:
            if not time_budget.fits_another(deadline - time.monotonic(), times, share.seeds):
                break
            start = time.monotonic()
            _side_by_side(_plan(args, study, [seed]), runners, interruption)
            times.append(time.monotonic() - start)
    return replace(report, study=study)


def _settings(updates: int) -> tuple[str, ...]:
    """Return the changes of a short training to the recipe, the same for both rows."""
    return (
        f"optimization.max_update={updates}",
        f"lr_scheduler.warmup_updates={max(5, updates // 6)}",
        f"common.log_interval={LOG_INTERVAL}",
        "checkpoint.save_interval_updates=0",
    )


def _side_by_side(
    pair: "Sequence[PlannedRun]", runners: "Sequence[TableRunner]", interruption: "Interruption"
) -> None:
    """Bring both runs of a pair to their results.

    Raises:
        WorkError: one failed, with what its log says.
    """
    from fairseq_plugins.records.logs import last_lines
    from fairseq_plugins.runner.worker_pool import side_by_side

    ended = side_by_side(lambda one, runner: runner.run(one), pair, runners, interruption)
    for _, failure in ended:
        if failure:
            said = "\n".join(last_lines(failure.log)) if failure.log else ""
            raise WorkError(f"{failure.name}: {failure.reason}\n{said}")


def _speed(pair: "Sequence[PlannedRun]", run: Callable[[], None]) -> "Speed":
    """Measure the training speed of a pair by a trial, which leaves nothing behind."""
    from fairseq_plugins.records.logs import read_training_log
    from fairseq_plugins.runner.time_budget import Speed

    start = time.monotonic()
    run()
    whole = time.monotonic() - start
    slowest = 0.0
    for one in pair:
        training = one.trainings[-1]
        wps = read_training_log(ROOT / training.folder / "train.log").tokens_per_second
        dataset, task = training.config["dataset"], training.config["task"]
        tokens = dataset["batch_size"] * task["tokens_per_sample"]
        slowest = max(slowest, tokens / wps if wps else whole / TRIAL_UPDATES)
    for folder in {
        ROOT / p for one in pair for p in (one.run.result.parent, one.run.folder.parent)
    }:
        shutil.rmtree(folder, ignore_errors=True)
    return Speed(slowest, max(1.0, whole - TRIAL_UPDATES * slowest))


def _show(args: argparse.Namespace, report: "Report", runs: Path) -> None:
    """Print the comparison, and write the page and the pictures."""
    from fairseq_plugins.records.logs import read_losses
    from fairseq_plugins.report import pairwise_runs

    read = report.read()
    for sentence in read.left_out:
        print(f"Left out: {sentence}", file=sys.stderr)
    column = report.table.ranked_by
    found = pairwise_runs.compare(args.first, args.second, args.attention, column, read.shown)
    losses = {
        row: [
            read_losses(runs / f"{row}-{args.attention}-s{seed}" / "train.log")
            for seed in found.seeds
            if (runs / f"{row}-{args.attention}-s{seed}" / "train.log").is_file()
        ]
        for row in (args.first, args.second)
    }
    report.write()
    pictures = pairwise_runs.draw(
        found, pairwise_runs.mean_curves(losses), ROOT / report.page.with_suffix("")
    )
    print(f"\n{found.text()}\n")
    shown_paths = [report.page, *(Path(os.path.relpath(path, ROOT)) for path in pictures)]
    print(f"Written: {', '.join(str(path) for path in shown_paths)}")
