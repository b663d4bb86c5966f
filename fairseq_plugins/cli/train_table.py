"""`fairseq-pe table table2 ...`, which scripts/table2.sh calls."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.cli.table_options import (
    SCRIPTS,
    check_own_data,
    get_paper_parser,
    get_parser,
    study_from,
    study_options,
)
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.extras import is_installed, remedy
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    PLACES,
    ROOT,
    add_places,
    configs_folder,
    place,
    put,
    put_places,
)
from fairseq_plugins.papers import PUBLISHED, SCALE_NAMES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.runs import LOCAL

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.experiments.planned import PlannedRun
    from fairseq_plugins.experiments.start import Start
    from fairseq_plugins.records.runs import Study

PAPER = "paper"  # all tables and figures of one
CLAIMS = "claims"  # of the papers, judged by the results of all tables
PAGES = "pages"  # of all tables, and the claims
EXTRA_WORDS = (CLAIMS, PAGES, PAPER)  # beside the tables


def claims(arguments: Sequence[str], root: Path) -> int:
    """Make results/claims.md and .json; returns the exit status."""
    _folder_of_results(
        arguments,
        root,
        CLAIMS,
        "What the papers claim against the results of all tables there are: makes claims.md and "
        "claims.json beside these. Trains nothing.",
    )
    _write_claims(root, lambda text: print(f"Left out: {text}", file=sys.stderr))
    return 0


def pages(arguments: Sequence[str], root: Path) -> int:
    """Make every page and figure of the results there are; returns the exit status."""
    _folder_of_results(
        arguments,
        root,
        PAGES,
        "Makes anew the page and the figures of every table, scale and study that has results, "
        "the BERT paper's Table 5, and the claims: after copying results from another machine, "
        "or after an update. Trains nothing.",
    )
    from fairseq_plugins.report.pages import write_correlations_page, write_table_pages

    def warn(text: str) -> None:
        print(text, file=sys.stderr)

    for page in write_table_pages(root, warn):
        print(page)
    for scale in SCALE_NAMES:
        if correlations := write_correlations_page(root, scale):
            print(correlations)
    _write_claims(root, lambda _: None)  # the tables have said what is left out
    return 0


def _folder_of_results(arguments: Sequence[str], root: Path, word: str, description: str) -> None:
    """Parse the options of a command that reads all results."""
    parser = Parser(prog=f"fairseq-pe table {word}", description=description)
    add_places(parser, ["results"])
    put_places(parser.parse_args(arguments))
    results = place("results")
    if not (root / results).is_dir():
        parser.error(f"`--results` must be a folder with results, but {results} is none.")


def _write_claims(root: Path, say: Callable[[str], None]) -> None:
    from fairseq_plugins.report.claims_page import PAGE, write_claims

    for scale, words in write_claims(root, say).items():
        print(f"{scale}: {', '.join(f'{count} {word}' for word, count in sorted(words.items()))}")
    print(f"All of them: {place('results') / PAGE}.md")


def get_chooser(names: Sequence[str], about: Sequence[str] = ()) -> Parser:
    """The parser of the first word alone; each name has options of its own.

    about: lines that say what the names are.
    """
    chooser = Parser(
        prog="fairseq-pe table",
        usage="%(prog)s NAME [options]",
        description="\n".join(["Make a table or figure of the papers.", "", *about]),
        epilog="`fairseq-pe table table2 --help` shows the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chooser.add_argument("table", choices=names, metavar="NAME", help="as above")
    return chooser


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Returns the exit status."""
    chooser = get_chooser([*SCRIPTS, *EXTRA_WORDS])
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = chooser.parse_args(given[:1]).table
    logging.disable(logging.INFO)  # of the libraries; this program prints
    if name == CLAIMS:
        return claims(given[1:], root)
    if name == PAGES:
        return pages(given[1:], root)
    if name == PAPER:
        of_paper = get_paper_parser()
        paper_args = of_paper.parse_args(given[1:])
        if not paper_args.dry_run:  # which says what jobs would take, too
            _check_slurms(paper_args, of_paper, jobs=1)
        from fairseq_plugins.runner import paper

        return paper.make(root, paper_args, of_paper.error)
    try:
        return _make(name, given[1:], root)
    except DataError as error:  # of a folder that is looked at before anything starts
        get_parser(name).error(f"{error}.")


def _make(name: str, arguments: Sequence[str], root: Path) -> int:
    """Make a table; returns the exit status.

    Raises:
        DataError: a folder of data is damaged.
    """
    table, parser = SCRIPTS[name], get_parser(name)
    args = parser.parse_args(arguments)
    for other in ("force", "slurm"):
        if args.missing_checkpoints and getattr(args, other):
            parser.error(f"`--missing-checkpoints` must be left out with `--{other}`.")
    _check_slurms(args, parser)
    put_places(args)
    own = Path("results", LOCAL)
    if args.rerun and place("results") not in (Path("results"), own):
        parser.error(
            f"`--results` and {PLACES['results']} must be left out with `--rerun`, which writes to "
            f"{own}, but are {place('results')}."
        )
    if args.srun:
        from fairseq_plugins.runner.interruption import hold_back_signals

        hold_back_signals()
    try:
        _check_tracker(args.log)
    except ValueError as error:
        parser.error(str(error))
    # Only now, because these import torch and fairseq, which takes seconds.
    import torch

    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.records.recipe import REFUSED, in_a_line
    from fairseq_plugins.runner.jobs import check_jobs, check_node
    from fairseq_plugins.runner.plan import check_devices, check_study, plan, tracked

    if args.rerun:
        put("results", own)
        put("checkpoints", place("checkpoints") / LOCAL)  # which may be on another disk

    try:
        study = _known_study(root, table, args) or study_from(args, root)
    except OptionError as error:
        parser.error(f"{error}.")
    args.scale = args.scale or "mini"
    scales = EXPERIMENTS[table.experiment].scales
    if args.scale not in scales:
        parser.error(f"`--scale` must be among {', '.join(scales)}, but is {args.scale}.")
    scale = scales[args.scale]
    seeds_asked = args.seeds or list(table.seeds if scale.name == "paper" else (1,))
    gpus = scale.gpus if args.gpus is None else args.gpus
    job = int(os.environ.get("SLURM_JOB_ID", 0)) if args.srun else 0
    is_slurm, side_by_side = args.slurm or args.srun, args.jobs or 1
    trains = args.stage in ("all", "train")
    # Several runs in a job are processes of one node, as outside Slurm.
    devices = Devices(gpus, srun=is_slurm and gpus > 0 and side_by_side == 1, job=job)
    try:
        if study is not None:
            check_study(table)
        check_devices(scale, devices)
        if args.jobs is not None:
            check_jobs(args.jobs, gpus, is_slurm=is_slurm)
        if args.srun and not args.dry_run:
            available = torch.cuda.device_count()
            check_node(gpus * side_by_side, available, only_measures=not trains)
        planned, skipped = plan(
            configs_folder(root),
            table,
            scale,
            devices,
            rows=args.rows,
            attentions=args.attention,
            seeds=seeds_asked,
            lengths=args.lengths if table.lengths else (),
            start=_start(root, args.start, table, scale.name),
            study=study,
        )
    except REFUSED as error:
        parser.error(in_a_line(error))
    if args.log:
        planned = [tracked(one, args.log) for one in planned]
    if study is not None:
        planned = [replace(one, options=(*one.options, *study_options(args))) for one in planned]
    if args.runs:
        planned = [one for one in planned if one.run.name in args.runs]
    for cell in skipped if args.rows and not args.runs else ():
        print(f"{cell.row} under {cell.attention} attention stays empty: {cell.reason}")
    from fairseq_plugins.runner import session, slurm
    from fairseq_plugins.runner.runner import with_what_is_trained

    if args.rows is None and table.only_trained:
        every, planned = len(planned), with_what_is_trained(root, planned)
        if left := every - len(planned):
            print(f"Not trained yet, and left out unless named in --rows: {left} of {every} runs")
    options = ("--keep", args.keep) if args.keep != "all" else ()
    request = slurm.Request(args.force, side_by_side, args.max_running, options)
    if args.dry_run:
        jobs_to_submit = slurm.make_chain(root, [planned], request) if args.slurm else None
        try:
            print("\n".join(session.dry_run(planned, scale, jobs_to_submit)), flush=True)
        except BrokenPipeError:  # piped into head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if args.phases:
        from fairseq_plugins.runner.overheads import overheads

        print(overheads(root, planned))
        return 0
    if args.render:
        session.render(root, table, scale, planned)
        return 0
    to_make = planned if args.force else _not_there(root, planned, args)
    if not to_make:
        session.render(root, table, scale, planned)
        return 0
    planned, again = to_make, args.force or args.missing_checkpoints
    jobs = args.jobs or session.default_jobs(root, planned, devices, force=again)
    # What trains elsewhere needs its GPUs there.
    here = jobs if not args.slurm and trains else 0
    try:
        if args.data:
            check_own_data(args.data, EXPERIMENTS[table.experiment].data_files)
        session.require(root, planned, force=again, jobs=here, keep=args.keep)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if args.slurm:
        return slurm.submit(root, [planned], request)
    return session.work(
        root,
        table,
        scale,
        planned,
        force=args.force,
        jobs=jobs,
        job=job if args.srun else None,
        stage=args.stage,
        keep=args.keep,
        checkpoints=args.missing_checkpoints,
    )


def _start(root: Path, given: Path | None, table: Table, scale: str) -> "Start | None":
    """The published model that rows start from, if any.

    Raises:
        ValueError: one is given, but rows start from models that are trained here.
    """
    from fairseq_plugins.experiments import may_start_published
    from fairseq_plugins.experiments.start import Start

    if given and not may_start_published(table.name, scale):
        raise ValueError(
            f"`--start` must be left out with {table.name} at scale {scale}, whose rows start from "
            f"models that are trained here, but is {given}."
        )
    if scale == PUBLISHED:
        return Start.read_sizes(root, given) if given else Start.published(root)
    return Start.read(root, given) if given else None


def _check_slurms(args: argparse.Namespace, parser: Parser, jobs: int | None = None) -> None:
    """Refuse options that say something of Slurm's jobs alone, where there are none.

    jobs: the number where `--jobs` is such an option.
    """
    given = {"max-running": args.max_running != 0, "jobs": jobs is not None and args.jobs != jobs}
    for option, is_given in given.items():
        if is_given and not args.slurm:
            parser.error(f"`--{option}` must be left out without `--slurm`.")


def _not_there(
    root: Path, planned: "Sequence[PlannedRun]", args: argparse.Namespace
) -> "list[PlannedRun]":
    """The runs that this call makes; how many are left, and why, is printed."""
    from fairseq_plugins.runner.published import describe, split_published
    from fairseq_plugins.runner.runner import is_recorded, lacks_checkpoint

    if args.missing_checkpoints:
        left = [
            p for p in planned if not is_recorded(root, p) or lacks_checkpoint(root, p, args.keep)
        ]
        if there := len(planned) - len(left):
            print(f"With result and checkpoint: {there} of {len(planned)} runs")
        return left
    left, published = split_published(root, planned)
    if published:
        print(describe(published, len(planned)))
    return left


def _check_tracker(tracker: str | None) -> None:
    """Refuse --log where what it needs is not installed."""
    modules = {"tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",)}
    if tracker and not any(is_installed(module) for module in modules[tracker]):
        raise ValueError(
            f"`--log {tracker}` needs {modules[tracker][0]}, which is not installed; "
            f"{remedy('logging')} brings it"
        )


def _known_study(root: Path, table: Table, args: argparse.Namespace) -> "Study | None":
    """That of the results there are, where its name alone is given; puts its scale in `args`.

    Raises:
        OptionError: another scale is asked for.
    """
    if not args.name or args.data or args.updates or args.set:
        return None
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.records import results

    folder = root / place("results") / table.name / args.name
    metrics = EXPERIMENTS[table.experiment].metrics
    found = results.read_results(folder, metrics, lambda text: None)
    if not found:
        return None
    scale = found[0]["scale"]
    if args.scale not in (None, scale):
        raise OptionError(
            f"`--scale` must be {scale}, of which the study {args.name} is, but is {args.scale}"
        )
    args.scale = scale
    return results.run_of(found[0]).study


if __name__ == "__main__":
    sys.exit(main())
