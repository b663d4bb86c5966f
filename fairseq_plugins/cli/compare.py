"""``fairseq-pe compare A B ... --text FILE --minutes N``: encodings on a text, with intervals."""

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    ROOT,
    add_folder_options,
    apply_folder_options,
    configs_folder,
    data_folder,
    from_root,
    root_folder,
)
from fairseq_plugins.data.options import check_at_least

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.records.runs import Run, Study
    from fairseq_plugins.report.page import Report
    from fairseq_plugins.report.pairwise_runs import PairwiseRuns

ATTENTIONS = ("vanilla", "linear")
_DATA = "compare-"  # begins the names of its folders of data


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe compare",
        description="Train small language models with two or more position encodings on a text, "
        "from the same seeds, within some minutes on a CPU, and print the difference of every "
        "two with its interval and p-value. There is always an answer: where time runs short, "
        "updates, model or seeds become fewer, and this is said.",
        epilog="The runs are a study of Table 2: results/table2/<name>.md has every number, "
        "<name>-pairs.md the differences, and `fairseq-pe table table2 --name <name>` adds rows "
        "and seeds.",
    )
    add = parser.add_argument
    text = "two or more encodings, or rows of configs/model"
    add("encodings", nargs="+", metavar="A B", help=text)
    data = parser.add_mutually_exclusive_group(required=True)
    text = "UTF-8, plain, .xz or .gz"
    data.add_argument("--text", type=Path, metavar="FILE", help=text)
    text = "labelled examples, for which `fairseq-pe finetune` fine-tunes a published model from "
    text += "each seed, without a limit in minutes"
    data.add_argument("--labelled", type=Path, metavar="TSV", help=text)
    add("--start", type=Path, metavar="START", help="of --labelled (default: checkpoints/start)")
    add("--minutes", type=float, default=10.0, metavar="N", help="for all of it (default: 10)")
    add("--attention", choices=ATTENTIONS, default="vanilla", help="(default: vanilla)")
    text = "of every encoding; more where time is left, fewer where it is short (default: 5)"
    add("--seeds", type=int, default=5, metavar="N", help=text)
    text = "of the subwords that are learned from the text (default: 500)"
    add("--merges", type=int, default=500, metavar="N", help=text)
    add("--name", metavar="WORD", help="of its folder (default: A-B-attention-FILE)")
    add("--force", action="store_true", help="make anew what was compared before")
    add_folder_options(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; the exit status: 2 where nothing was started, 130 for Ctrl-C."""
    begin = time.monotonic()
    parser = get_parser()
    args = parser.parse_args(argv)
    apply_folder_options(args)
    logging.disable(logging.INFO)  # of the libraries; this program prints
    if args.labelled is not None:
        return _fine_tune(args)
    try:
        study = _checked(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    try:
        return exit_status(args.program, lambda: _run(args, study, begin))
    except KeyboardInterrupt:
        print("\nStopped. The same command shows the pairs that were finished, or starts anew.")
        return 130


def _fine_tune(args: argparse.Namespace) -> int:
    """Compare on labelled examples; return the exit status."""
    from fairseq_plugins.cli import finetune

    words = [str(args.labelled), "--encoding", ",".join(args.encodings)]
    words += [
        "--attention",
        args.attention,
        "--seeds",
        ",".join(map(str, range(1, args.seeds + 1))),
    ]
    words += ["--start", str(args.start)] if args.start else []
    return finetune.main([*words, *(["--force"] if args.force else [])])


def _checked(args: argparse.Namespace) -> "Study":
    """Check all options before any work; return the study without its budget."""
    given = " ".join(args.encodings)
    if len(args.encodings) < 2 or len({*args.encodings}) < len(args.encodings):
        raise OptionError(f"A, B, ... must be two or more different encodings, but are {given}")
    if not 0.5 <= args.minutes <= 24 * 60:
        raise OptionError(f"--minutes must be from 0.5 to 1440, but is {args.minutes:g}")
    if args.start is not None:
        raise OptionError("--start must be left out with --text, whose models start from nothing")
    if args.seeds < 2:
        raise OptionError(f"--seeds must be at least 2, but is {args.seeds}")
    if not args.text.is_file():
        raise OptionError(f"--text must be a file, but is {args.text}")
    check_at_least(1, merges=args.merges)
    from fairseq_plugins.cli.table_options import study_name
    from fairseq_plugins.data.measure import sha256
    from fairseq_plugins.experiments.rows import check_row, runnable_rows
    from fairseq_plugins.records.runs import Study
    from fairseq_plugins.runner.text_rounds import plan_round

    for row in args.encodings:
        check_row(runnable_rows(configs_folder(ROOT)), row, "A, B, ... must be")
    stem = re.sub(r"[^A-Za-z0-9]+", "_", args.text.name.partition(".")[0])[:20]
    name = args.name or "-".join([*args.encodings, args.attention, stem])[:64]
    try:
        study_name(name)
    except argparse.ArgumentTypeError as error:
        raise OptionError(str(error)) from None
    # Two texts of one name have two folders, by which their results are told apart.
    data = data_folder(f"{_DATA}{stem}-{args.merges}-{sha256(args.text)[:8]}")
    study = Study(name, (), from_root(data))
    plan_round(ROOT, args.encodings, args.attention, study, [1])
    return study


def _run(args: argparse.Namespace, study: "Study", begin: float) -> None:
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.papers.lrpe import TABLE_2
    from fairseq_plugins.report.page import Report
    from fairseq_plugins.runner.text_rounds import SCALE

    report = Report(ROOT, TABLE_2, EXPERIMENTS[TABLE_2.experiment].scales[SCALE], study)
    recorded = _recorded(ROOT / report.folder, args)
    shown = _as_recorded(report, recorded[0]) if recorded and not args.force else None
    seeds = [{run.seed for run in recorded if run.row == row} for row in args.encodings]
    # Half a pair has the budget of a time that is over, which the other half would not have.
    if shown is not None and set.intersection(*seeds):
        report = replace(report, study=shown)
        print(f"Compared before, in {report.page.with_suffix('')}; --force does it anew.\n")
    else:
        report = _train(args, report, begin)
    _show(args, report)
    print(f"Minutes: {(time.monotonic() - begin) / 60:.1f} of {args.minutes:g}")


def _recorded(results: Path, args: argparse.Namespace) -> "list[Run]":
    """The runs that have results in a comparison's folder.

    Raises OptionError: it has something else, which is not to be shown, or made anew, as this.
    """
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.papers.lrpe import TABLE_2
    from fairseq_plugins.records.results import load_result, run_of

    metrics = EXPERIMENTS[TABLE_2.experiment].metrics
    found = [run_of(load_result(path, metrics)) for path in sorted(results.glob("*.json"))]
    for run in found:
        data = run.study.data if run.study is not None else None
        is_own = data is not None and data.name.startswith(_DATA)
        if not is_own or run.row not in args.encodings or run.attention != args.attention:
            raise OptionError(
                f"--name must be a new one: in {results.relative_to(ROOT)} is {run.name}, which is "
                f"not of a comparison of {' and '.join(args.encodings)} under {args.attention} "
                "attention"
            )
    return found


def _as_recorded(report: "Report", run: "Run") -> "Study":
    """The study as a result has it, and the folder of data that is known here.

    Raises OptionError: it is of another text, or of other pieces.
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
    """Prepare the text, run the pilot, and train more rounds until the time is over."""
    from fairseq_plugins.common.cpu import usable_cores
    from fairseq_plugins.data.one_text import prepare_one_text
    from fairseq_plugins.runner import table_run, text_rounds, time_budget, timed_rounds
    from fairseq_plugins.runner.run_options import RunOptions

    study, jobs = report.study, min(2, usable_cores())
    assert study is not None and study.data is not None
    print(_intention(args), flush=True)
    prepare_one_text(args.text, ROOT / study.data, merges=args.merges, workers=jobs)
    pilot = replace(study, overrides=text_rounds.overrides(time_budget.PILOT))
    every = range(1, max(args.seeds, time_budget.MOST_SEEDS) + 1)
    planned = text_rounds.plan_round(ROOT, args.encodings, args.attention, pilot, every)

    def show(title: str, study: "Study") -> None:
        found = _compared(args, replace(report, study=study))
        print(f"{title}: {found.summary()}", flush=True)

    watch = timed_rounds.Watch()
    title, options = f"compare, {study.name}", RunOptions(jobs=jobs)
    with table_run.start_workers(ROOT, title, planned, options, watch) as workers:
        workers[0].warm_up()
        rounds = text_rounds.TextRounds(
            ROOT, args.encodings, args.attention, pilot, workers, watch, show
        )
        rounds.remove_all()
        deadline = begin + 60 * args.minutes
        timed_rounds.run_rounds(rounds, deadline, args.seeds, partial(print, flush=True))
        rounds.remove_aside()
    return replace(report, study=rounds.study)


def _intention(args: argparse.Namespace) -> str:
    """Say what the command will do."""
    from fairseq_plugins.runner.time_budget import PILOT_UPDATES

    return (
        f"Comparing {', '.join(args.encodings)} under {args.attention} attention on "
        f"{args.text.name}, in about {args.minutes:g} minutes: the text is split into subwords; a "
        f"pilot of {PILOT_UPDATES} updates measures this machine; then all encodings are trained "
        f"from the same seeds, with as many updates and seeds (up to {args.seeds}) as fit. If "
        "time runs short, updates, model or seeds become fewer; the pilot is the least result."
    )


def _compared(args: argparse.Namespace, report: "Report") -> "PairwiseRuns":
    """Compare the results that the report shows."""
    from fairseq_plugins.report import pairwise_runs

    return pairwise_runs.compare(args.encodings, args.attention, report.table, report.read().shown)


def _show(args: argparse.Namespace, report: "Report") -> None:
    """Print the comparison, and write the pages and the pictures."""
    from fairseq_plugins.records.logs import read_losses
    from fairseq_plugins.report import pairwise_runs
    from fairseq_plugins.report.markup import write_page

    read, runs = report.read(), ROOT / root_folder("checkpoints") / report.table.name / report.name
    for sentence in read.left_out:
        print(f"Left out: {sentence}", file=sys.stderr)
    found = _compared(args, report)
    logs = {
        row: [runs / f"{row}-{args.attention}-s{seed}" / "train.log" for seed in found.seeds]
        for row in args.encodings
    }
    losses = {row: [read_losses(log) for log in own if log.is_file()] for row, own in logs.items()}
    report.write()
    stem, name = ROOT / report.page.with_suffix(""), report.name
    page = stem.with_name(f"{name}-pairs.md")
    config = read.shown[0]["config"]
    trained = f"{config['optimization']['max_update']} updates each"
    write_page(page, found.markdown(f"Comparison `{name}`, {trained}"))
    pictures = pairwise_runs.draw(found, pairwise_runs.mean_curves(losses), stem)
    print(f"\n{found.text()}\n\nTrained for {trained}.")
    written = [ROOT / report.page, page, *pictures]
    print(f"Written: {', '.join(os.path.relpath(path, ROOT) for path in written)}")
