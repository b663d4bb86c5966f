"""The command `fairseq-pe compare`: train encodings on one text, and show every difference."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.files import short_stem
from fairseq_plugins.common.locks import Busy, exclusive_lock
from fairseq_plugins.common.root import ROOT, configs_folder, data_folder, from_root, root_folder
from fairseq_plugins.data import one_text
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.rows import check_row, runnable_rows
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.logs import read_losses
from fairseq_plugins.records.results import load_result, run_of
from fairseq_plugins.records.runs import Run, Study
from fairseq_plugins.report import pairwise_runs
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import table_run, text_rounds, time_budget
from fairseq_plugins.runner.run_options import RunOptions

_DATA = "compare-"  # prefix of the names of its data folders


def compare(args: argparse.Namespace) -> None:
    """Compare encodings, or show an earlier comparison; OptionError before any work.

    args: of `fairseq-pe compare`.
    """
    begin, study = time.monotonic(), _planned_study(args)
    report = Report(ROOT, TABLE_2, EXPERIMENTS[TABLE_2.experiment].scales[text_rounds.SCALE], study)
    with _lock(study.name):
        recorded = _recorded(ROOT / report.folder, args)
        shown = _as_recorded(report, recorded[0]) if recorded and not args.force else None
        # A missing half of a pair cannot be added later: its budget of time would be another.
        if shown is not None and _has_pair(recorded, args):
            report = replace(report, study=shown)
            print(f"Compared before, in {report.page.with_suffix('')}; --force does it anew.\n")
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
    text_rounds.plan_round(ROOT, args.encodings, args.attention, study, [1])
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
    pilot = replace(study, overrides=text_rounds.overrides(time_budget.PILOT))
    every = range(1, max(args.seeds, time_budget.MOST_SEEDS) + 1)
    planned = text_rounds.plan_round(ROOT, args.encodings, args.attention, pilot, every)

    watch = time_budget.Watch()
    title, options = f"compare, {study.name}", RunOptions(jobs=jobs)
    with table_run.start_workers(ROOT, title, planned, options, watch) as workers:
        workers[0].warm_up()
        rounds = text_rounds.TextRounds(report, args.encodings, args.attention, workers, watch)
        rounds.remove_all()
        deadline = begin + 60 * args.minutes
        workers[0].progress.deadline = deadline
        text_rounds.run_rounds(rounds, deadline, args.seeds, partial(print, flush=True))
        rounds.remove_aside()
    return rounds.report


def _intention(args: argparse.Namespace) -> str:
    """Describe the steps of the command, before they begin."""
    return (
        f"Comparing {', '.join(args.encodings)} under {args.attention} attention on "
        f"{args.text.name}, in about {args.minutes:g} minutes: the text is split into subwords; a "
        f"pilot of {time_budget.PILOT_UPDATES} updates measures this machine; then all encodings "
        f"are trained from the same seeds, with as many updates and seeds (up to {args.seeds}) as "
        "fit. If time runs short, updates, model or seeds become fewer; the pilot is the least "
        "result."
    )


def _show(args: argparse.Namespace, report: Report) -> None:
    """Print the comparison, and write the pages and the pictures."""
    read, runs = report.read(), ROOT / root_folder("checkpoints") / report.table.name / report.name
    for sentence in read.left_out:
        print(f"Left out: {sentence}", file=sys.stderr)
    pairs = text_rounds.compare_results(report, args.encodings, args.attention)
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
    print(f"Written: {', '.join(os.path.relpath(path, ROOT) for path in written)}")
