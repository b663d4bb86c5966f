"""The command `fairseq-pe table NAME`: plan a table's runs, and train, submit or print them."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.root import configs_folder, from_root
from fairseq_plugins.experiments import EXPERIMENTS, may_start_published
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import PretrainedModel, default_checkpoint
from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.logs import PAGE_PREFIX, last_lines
from fairseq_plugins.records.recipe import COMPOSITION_ERRORS, in_a_line
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import phase_times, preflight, run_state, slurm_queue, slurm_submission
from fairseq_plugins.runner.interruption import Interruption, OutOfTime, Terminated
from fairseq_plugins.runner.launcher import with_folders
from fairseq_plugins.runner.plan import check_study, devices_of, plan, tracked
from fairseq_plugins.runner.run_execution import RunFailed
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.slurm_job import Job
from fairseq_plugins.runner.studies import check_own_data, requested_study, study_options
from fairseq_plugins.runner.table_runner import TableRunner, start_workers
from fairseq_plugins.runner.worker_pool import side_by_side


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
        print("\n".join(dry_run(planned, scale, jobs)))
        return 0
    if args.phases:
        print(phase_times.phase_table(root, planned))
        return 0
    to_make = planned if args.force or args.render else _not_done(root, planned, args)
    if args.render or not to_make:
        report = report_of(root, planned[0]) if planned else Report(root, table, scale)
        if reason := render(report, planned):
            raise OptionError(f"`--name` must be that of a study with results, but {reason}")
        return 0
    jobs_at_once = _check_start(root, to_make, devices, args)
    if args.slurm:
        return slurm_submission.submit(root, [to_make], options)
    return run_table(root, to_make, replace(options, jobs=jobs_at_once))


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
        missing_tasks=bool(table.average_of) and args.missing_tasks,
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


def run_table(root: Path, planned: Sequence[PlannedRun], options: RunOptions) -> int:
    """Train and measure runs of a table, `options.jobs` at once; print it, return the exit status.

    0: all done, 1: a run failed, 130: Ctrl-C, 143: SIGTERM, 138: SIGUSR1.
    """
    interruption, report = Interruption(), report_of(root, planned[0])
    outcomes: dict[Run, RunFailed | None] = {}  # of the runs that ended
    shown = 0  # how many of them the page has

    def run(one: PlannedRun, worker: TableRunner) -> None:
        outcomes[one.run] = worker.run(one)

    title = f"{report.table.name}, {report.name}"
    try:
        with start_workers(root, title, planned, options, interruption) as workers:
            for _ in side_by_side(run, planned, workers, interruption):
                # The page reads all results, of which a thousand take longer than a thousand
                # runs that are done already.
                if len(outcomes) > shown:
                    shown = len(outcomes)
                    with suppress(OSError, DataError):  # reported by `render`
                        report.write()
            interruption.check()
        failures = {one.run.name: failed for one in planned if (failed := outcomes.get(one.run))}
        try:
            render(report, planned)
        except (OSError, DataError) as error:
            failures[report.page.as_posix()] = RunFailed(str(error))
    except KeyboardInterrupt as stop:
        how = _how_to_resume(root, planned, outcomes) if options.force else slurm_queue.RESUMES
        if isinstance(stop, OutOfTime):
            return slurm_queue.requeue(options.job, has_gained=interruption.has_gained, how=how)
        print(f"\nStopped. The same command {how}")
        return 143 if isinstance(stop, Terminated) else 130
    _print_failures(root, failures)
    return 1 if failures else 0


def _print_failures(root: Path, failures: Mapping[str, RunFailed]) -> None:
    for name, failed in failures.items():
        print(f"\nFAILED {name}: {failed}")
        if failed.log:
            print(f"  log: {from_root(failed.log, root)}")
            print("\n".join(f"  | {line}" for line in last_lines(failed.log)))


def _how_to_resume(
    root: Path, planned: Sequence[PlannedRun], outcomes: Mapping[Run, RunFailed | None]
) -> str:
    """Describe how to resume after `--force` has begun some of the runs."""
    done = {run for run, failed in outcomes.items() if failed is None}
    left = [p.run.name for p in planned if p.run not in done and run_state.is_recorded(root, p)]
    more = f" Not begun, and to be named with --force again: {', '.join(left)}." if left else ""
    return f"without --force {slurm_queue.RESUMES}{more}"


def report_of(root: Path, planned: PlannedRun) -> Report:
    """Return the page of a run's table, at the run's scale or of its study."""
    run = planned.run
    return Report(root, TABLES[run.table], planned.experiment.scales[run.scale], run.study)


def render(report: Report, planned: Sequence[PlannedRun]) -> str:
    """Write the pages and figures of a table and of those it starts from, and print the table.

    Returns the reason why nothing is written, of a study that has nothing to show; else "".
    """
    if report.study is not None and not (found := report.read()).shown:
        if not report.files():
            return f"{report.folder} has none"
        return f"{report.folder} has no results of these settings: {' '.join(found.left_out)}"
    before = {one.run.table: one for run in planned for one in run.ancestors}
    for each in (*(report_of(report.root, one) for one in before.values()), report):
        found = each.make()
        for sentence in found.left_out:
            print(f"Left out of {each.page}: {sentence}", file=sys.stderr)
    where = (
        "in the paper and, at scale {}, ours" if report.shown_table.is_printed else "at scale {}"
    )
    heading = f"{report.table.source}: {report.table.ranked_by.label} "
    heading += where.format(report.scale.name)
    heading += f", study {report.study.name}" if report.study else ""
    print(f"\n{heading}\n\n{report.text(found)}\n\n{PAGE_PREFIX}{report.page}")
    return ""


def dry_run(
    planned: Sequence[PlannedRun], scale: Scale, jobs: Sequence[Job] | None = None
) -> list[str]:
    """Return the commands of all runs, as they are typed in the root.

    jobs: Slurm jobs, if the runs are to be submitted.
    """
    before = [c for one in planned if one.pretraining for c in one.pretraining.prepare]
    prepare = dict.fromkeys([*before, *scale.prepare])
    lines = [f"# Runs: {len(planned)}. Data, where it is not there yet:", *prepare]
    printed: set[str] = set()  # several runs may start from the same one
    for one in planned:
        run = one.run
        lines += ["", f"# {run.row}, {run.attention} attention, seed {run.seed}"]
        commands = [shlex.join(with_folders(command)) for command in one.commands()]
        if jobs is not None:
            lines += [f"#   runs: {command}" for command in commands]
        else:
            lines += [command for command in commands if command not in printed]
            printed.update(commands)
    return [*lines, *_submissions(jobs or ())]


def _submissions(jobs: Sequence[Job]) -> list[str]:
    """Return the commands that submit jobs, in order, without the numbers that Slurm gives them."""
    lines: list[str] = []
    for folder in dict.fromkeys(job.folder for job in jobs):  # Slurm makes none for a log
        lines += ["", shlex.join(["mkdir", "-p", folder.as_posix()])]
    for job in jobs:
        waits = {"succeeded": job.after, "ended": job.finally_after}
        after = [f"#   once these have {how}: {', '.join(n)}" for how, n in waits.items() if n]
        lines += ["", f"# {job.name}", *after, shlex.join(job.sbatch({}))]
    return lines
