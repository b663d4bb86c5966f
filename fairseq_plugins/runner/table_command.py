"""The command `fairseq-pe table NAME`: plan a table's runs, and train, submit or print them."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.root import configs_folder
from fairseq_plugins.experiments import EXPERIMENTS, may_start_published
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import PretrainedModel, default_checkpoint
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.recipe import COMPOSITION_ERRORS, in_a_line
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import phase_times, preflight, run_state, slurm_submission, table_run
from fairseq_plugins.runner.plan import check_study, devices_of, plan, tracked
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.studies import check_own_data, requested_study, study_options


def make(root: Path, table: Table, args: argparse.Namespace) -> int:
    """Run the command with options of `table_options.get_parser`; return the exit status.

    Raises OptionError, DataError: wrong options or data, found before anything starts.
    """
    try:
        scale, devices, planned = _plan(root, table, args)
    except COMPOSITION_ERRORS as error:
        raise OptionError(in_a_line(error)) from None
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
        print("\n".join(table_run.dry_run(planned, scale, jobs)))
        return 0
    if args.phases:
        print(phase_times.phase_table(root, planned))
        return 0
    to_make = planned if args.force or args.render else _not_done(root, planned, args)
    if args.render or not to_make:
        report = table_run.report_of(root, planned[0]) if planned else Report(root, table, scale)
        if reason := table_run.render(report, planned):
            raise OptionError(f"`--name` must be that of a study with results, but {reason}")
        return 0
    jobs_at_once = _check_start(root, to_make, devices, args)
    if args.slurm:
        return slurm_submission.submit(root, [to_make], options)
    return table_run.run_table(root, to_make, replace(options, jobs=jobs_at_once))


def _check_start(
    root: Path, to_make: Sequence[PlannedRun], devices: Devices, args: argparse.Namespace
) -> int:
    """Check that runs can start; return how many run side by side."""
    again = args.force or args.missing_checkpoints
    to_train = [one for one in to_make if again or not run_state.is_recorded(root, one)]
    jobs: int = args.jobs or preflight.default_jobs(to_train, devices)
    trains_here = not args.slurm and args.stage in ("all", "train")
    try:
        if args.data:
            check_own_data(args.data, to_make[0].experiment.data_files)
        preflight.check_ready(root, to_train, jobs=jobs if trains_here else 0, keep=args.keep)
    except (ValueError, OSError) as error:
        raise OptionError(str(error)) from None
    return jobs


def _plan(
    root: Path, table: Table, args: argparse.Namespace
) -> tuple[Scale, Devices, list[PlannedRun]]:
    """Plan the requested runs, and print which cells stay empty.

    Raises one of `COMPOSITION_ERRORS` for a wrong option or missing data.
    """
    study = requested_study(root, table, args)
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
        own = study_options(study, args, root)
        planned = [replace(one, options=(*one.options, *own)) for one in planned]
    if args.runs:
        planned = [one for one in planned if one.run.name in args.runs]
    for (row, attention), reason in skipped.items() if args.rows and not args.runs else ():
        print(f"{row} under {attention} attention stays empty: {reason}")
    if args.rows is None and table.evaluate_only:
        every, planned = len(planned), run_state.without_untrained(root, planned)
        if left := every - len(planned):
            print(f"Not trained yet, and left out unless named in --rows: {left} of {every} runs")
    return scale, devices, planned


def _devices(args: argparse.Namespace, scale: Scale) -> Devices:
    """Return the devices of each run; ValueError for impossible GPUs or runs at once."""
    jobs, is_slurm = 1 if args.jobs is None else args.jobs, args.slurm or args.srun
    number = int(os.environ.get("SLURM_JOB_ID", 0)) if args.srun else 0
    devices = devices_of(scale, args.gpus, jobs, is_slurm=is_slurm, job=number)
    if args.srun and not args.dry_run:
        only_measures = args.stage not in ("all", "train")
        available = torch.cuda.device_count()
        preflight.check_node(devices.gpus * jobs, available, only_measures=only_measures)
    return devices


def _start(root: Path, given: Path | None, table: Table, scale: str) -> PretrainedModel | None:
    """Return the published model that rows start from, if any.

    Raises ValueError if `--start` is given and rows start from models that are trained here.
    """
    if given and not may_start_published(table.name, scale):
        raise ValueError(
            f"`--start` must be left out with {table.name} at scale {scale}, whose rows start from "
            f"models that are trained here, but is {given}."
        )
    if scale == PUBLISHED:
        path = given or default_checkpoint()
        is_missing = not given and not (root / path).is_file()
        return PretrainedModel(path, "") if is_missing else PretrainedModel.read_sizes(root, path)
    return PretrainedModel.load(root, given)[0] if given else None


def _not_done(
    root: Path, planned: Sequence[PlannedRun], args: argparse.Namespace
) -> list[PlannedRun]:
    """Return the runs that are not done, and print how many are left out and why."""
    if args.missing_checkpoints:
        left = [
            p
            for p in planned
            if not run_state.is_recorded(root, p) or run_state.lacks_checkpoint(root, p, args.keep)
        ]
        if there := len(planned) - len(left):
            print(f"With result and checkpoint: {there} of {len(planned)} runs")
        return left
    left, published = run_state.split_published(root, planned)
    if published:
        print(run_state.describe_published(published, len(planned)))
    return left
