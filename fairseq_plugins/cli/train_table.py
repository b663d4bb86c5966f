"""`fairseq-pe table NAME`: a table, all tables of a paper, all pages, or the claims."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.cli.table_checks import check_slurm_options, check_tracker
from fairseq_plugins.cli.table_options import (
    SCRIPTS,
    check_own_data,
    get_paper_parser,
    get_parser,
    study_from,
    study_options,
)
from fairseq_plugins.cli.table_pages import CLAIMS, PAGES, RECIPES, claims, pages, recipes
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    FOLDER_VARIABLES,
    ROOT,
    apply_folder_options,
    configs_folder,
    root_folder,
    set_folder,
)
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.runs import LOCAL

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.experiments.base import Scale
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.experiments.planned import PlannedRun
    from fairseq_plugins.experiments.training import PretrainedModel
    from fairseq_plugins.records.runs import Study

PAPER = "paper"  # all tables and figures of a paper
EXTRA_WORDS = (CLAIMS, PAGES, PAPER, RECIPES)  # in place of a table


def get_chooser(names: Sequence[str], about: Sequence[str] = ()) -> Parser:
    """Return the parser of the first word; each name has options of its own.

    about: lines that describe the names.
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
    """Run `fairseq-pe table`; return the exit status."""
    chooser = get_chooser([*SCRIPTS, *EXTRA_WORDS])
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = chooser.parse_args(given[:1]).table
    logging.disable(logging.INFO)  # libraries log; this program prints
    if name == CLAIMS:
        return claims(given[1:], root)
    if name == PAGES:
        return pages(given[1:], root)
    if name == RECIPES:
        return recipes(given[1:], root)
    if name == PAPER:
        parser = get_paper_parser()
        args = parser.parse_args(given[1:])
        if not args.dry_run:  # which also estimates jobs
            check_slurm_options(args, parser, jobs=1)
        from fairseq_plugins.runner import paper

        return paper.make(root, args, parser.error)
    try:
        return _make(name, given[1:], root)
    except DataError as error:  # found before anything starts
        get_parser(name).error(f"{error}.")


def _make(name: str, arguments: Sequence[str], root: Path) -> int:
    """Train and measure a table, or do what the options ask for instead; return the exit status.

    Raises:
        DataError: a folder of data is damaged.
    """
    table, parser = SCRIPTS[name], get_parser(name)
    args = parser.parse_args(arguments)
    check_slurm_options(args, parser)
    try:
        _check_options(args)
    except OptionError as error:
        parser.error(f"{error}.")
    if args.srun:
        from fairseq_plugins.runner.interruption import hold_back_signals

        hold_back_signals()
    # Only now, because these import PyTorch and fairseq, which takes seconds.
    from fairseq_plugins.records.recipe import REFUSED, in_a_line
    from fairseq_plugins.runner import phase_times, slurm_submission, table_run
    from fairseq_plugins.runner.run_options import RunOptions

    try:
        scale, devices, planned = _plan(root, table, args)
    except REFUSED as error:
        parser.error(in_a_line(error))
    options = RunOptions(
        force=args.force,
        missing_checkpoints=args.missing_checkpoints,
        jobs=args.jobs or 1,
        max_running=args.max_running,
        keep=args.keep,
        stage=args.stage,
        job=devices.job if args.srun else None,
    )
    if args.dry_run:
        jobs = slurm_submission.make_jobs(root, [planned], options) if args.slurm else None
        return _print(table_run.dry_run(planned, scale, jobs))
    if args.phases:
        print(phase_times.phase_table(root, planned))
        return 0
    to_make = planned if args.force or args.render else _not_done(root, planned, args)
    if args.render or not to_make:
        table_run.render(root, table, scale, planned)
        return 0
    options = replace(options, jobs=_check_start(root, to_make, devices, args, parser))
    if args.slurm:
        return slurm_submission.submit(root, [to_make], options)
    return table_run.run_table(root, table, scale, to_make, options)


def _check_start(
    root: Path,
    to_make: "Sequence[PlannedRun]",
    devices: "Devices",
    args: argparse.Namespace,
    parser: Parser,
) -> int:
    """Refuse runs that cannot start; return how many go side by side, or in one Slurm job."""
    from fairseq_plugins.runner import preflight

    again = args.force or args.missing_checkpoints
    jobs = args.jobs or preflight.default_jobs(root, to_make, devices, force=again)
    trains_here = not args.slurm and args.stage in ("all", "train")
    try:
        if args.data:
            check_own_data(args.data, to_make[0].experiment.data_files)
        preflight.check_ready(
            root, to_make, force=again, jobs=jobs if trains_here else 0, keep=args.keep
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return args.jobs or 1 if args.slurm else jobs


def _check_options(args: argparse.Namespace) -> None:
    """Check options that exclude each other, and set the folders that the options name.

    Raises:
        OptionError: naming the option.
    """
    for other in ("force", "slurm"):
        if args.missing_checkpoints and getattr(args, other):
            raise OptionError(f"`--missing-checkpoints` must be left out with `--{other}`")
    check_tracker(args.log)
    apply_folder_options(args)
    if args.rerun:
        own = Path("results", LOCAL)
        if root_folder("results") not in (Path("results"), own):
            raise OptionError(
                f"`--results` and {FOLDER_VARIABLES['results']} must be left out with `--rerun`, "
                f"which writes to {own}, but are {root_folder('results')}"
            )
        set_folder("results", own)
        set_folder(
            "checkpoints", root_folder("checkpoints") / LOCAL
        )  # which may be on another disk


def _plan(
    root: Path, table: Table, args: argparse.Namespace
) -> "tuple[Scale, Devices, list[PlannedRun]]":
    """Plan the runs that the options ask for, and print which cells stay empty.

    Raises:
        ValueError, hydra or omegaconf exceptions: a wrong option, or data that is missing.
    """
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.runner.plan import check_study, plan, tracked
    from fairseq_plugins.runner.run_state import without_untrained

    study = _known_study(root, table, args) or study_from(args, root)
    args.scale = args.scale or "mini"
    scales = EXPERIMENTS[table.experiment].scales
    if args.scale not in scales:
        raise OptionError(f"`--scale` must be among {', '.join(scales)}, but is {args.scale}.")
    scale = scales[args.scale]
    if study is not None:
        check_study(table)
    devices = _devices(args, scale)
    planned, skipped = plan(
        configs_folder(root),
        table,
        scale,
        devices,
        rows=args.rows,
        attentions=args.attention,
        seeds=args.seeds or list(table.seeds if scale.name == "paper" else (1,)),
        lengths=args.lengths if table.lengths else (),
        start=_start(root, args.start, table, scale.name),
        study=study,
    )
    if args.log:
        planned = [tracked(one, args.log) for one in planned]
    if study is not None:
        planned = [replace(one, options=(*one.options, *study_options(args))) for one in planned]
    if args.runs:
        planned = [one for one in planned if one.run.name in args.runs]
    for cell in skipped if args.rows and not args.runs else ():
        print(f"{cell.row} under {cell.attention} attention stays empty: {cell.reason}")
    if args.rows is None and table.evaluate_only:
        every, planned = len(planned), without_untrained(root, planned)
        if left := every - len(planned):
            print(f"Not trained yet, and left out unless named in --rows: {left} of {every} runs")
    return scale, devices, planned


def _devices(args: argparse.Namespace, scale: "Scale") -> "Devices":
    """Return the devices of each run.

    Raises:
        ValueError: GPUs or runs at once that cannot be.
    """
    import torch

    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.runner.plan import check_devices
    from fairseq_plugins.runner.preflight import check_jobs, check_node

    gpus = scale.gpus if args.gpus is None else args.gpus
    jobs, is_slurm = args.jobs or 1, args.slurm or args.srun
    number = int(os.environ.get("SLURM_JOB_ID", 0)) if args.srun else 0
    # Several runs in a job are processes of one node, as outside Slurm.
    devices = Devices(gpus, srun=is_slurm and gpus > 0 and jobs == 1, job=number)
    check_devices(scale, devices)
    if args.jobs is not None:
        check_jobs(args.jobs, gpus, is_slurm=is_slurm)
    if args.srun and not args.dry_run:
        only_measures = args.stage not in ("all", "train")
        check_node(gpus * jobs, torch.cuda.device_count(), only_measures=only_measures)
    return devices


def _print(lines: Sequence[str]) -> int:
    """Print lines, also into a pipe that closes early, as that of head; return exit status 0."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _start(root: Path, given: Path | None, table: Table, scale: str) -> "PretrainedModel | None":
    """Return the published model that rows start from, if any.

    Raises:
        ValueError: `--start` is given, but rows start from models that are trained here.
    """
    from fairseq_plugins.experiments import may_start_published
    from fairseq_plugins.experiments.training import PretrainedModel

    if given and not may_start_published(table.name, scale):
        raise ValueError(
            f"`--start` must be left out with {table.name} at scale {scale}, whose rows start from "
            f"models that are trained here, but is {given}."
        )
    if scale == PUBLISHED:
        return PretrainedModel.read_sizes(root, given) if given else PretrainedModel.published(root)
    return PretrainedModel.read(root, given) if given else None


def _not_done(
    root: Path, planned: "Sequence[PlannedRun]", args: argparse.Namespace
) -> "list[PlannedRun]":
    """Return the runs that are not done, and print how many are left out and why."""
    from fairseq_plugins.runner.run_state import (
        describe_published,
        is_recorded,
        lacks_checkpoint,
        split_published,
    )

    if args.missing_checkpoints:
        left = [
            p for p in planned if not is_recorded(root, p) or lacks_checkpoint(root, p, args.keep)
        ]
        if there := len(planned) - len(left):
            print(f"With result and checkpoint: {there} of {len(planned)} runs")
        return left
    left, published = split_published(root, planned)
    if published:
        print(describe_published(published, len(planned)))
    return left


def _known_study(root: Path, table: Table, args: argparse.Namespace) -> "Study | None":
    """Read a study from its results if only its name is given, and set its scale in `args`.

    Raises:
        OptionError: another scale is asked for.
    """
    if not args.name or args.data or args.updates or args.set:
        return None
    from fairseq_plugins.experiments import EXPERIMENTS
    from fairseq_plugins.records import results

    folder = root / root_folder("results") / table.name / args.name
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
