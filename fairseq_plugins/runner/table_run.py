"""Train and measure the runs of a table, and render its page."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from fairseq_plugins.common import provenance
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.root import from_root
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.logs import PAGE_PREFIX, last_lines
from fairseq_plugins.records.results import newest_by_attention, read_results, run_of
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import slurm_queue
from fairseq_plugins.runner.commands import with_folders
from fairseq_plugins.runner.interruption import Interruption, OutOfTime, Terminated
from fairseq_plugins.runner.launcher import Launcher, get_launchers
from fairseq_plugins.runner.progress import Progress
from fairseq_plugins.runner.run_execution import RunContext, RunFailed
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import is_recorded, shortened
from fairseq_plugins.runner.slurm_job import Job
from fairseq_plugins.runner.table_runner import TableRunner
from fairseq_plugins.runner.worker_pool import environments, side_by_side


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


@contextmanager
def start_workers(
    root: Path,
    title: str,
    planned: Sequence[PlannedRun],
    options: RunOptions,
    interruption: Interruption,
    launcher: Launcher | None = None,
) -> Iterator[list[TableRunner]]:
    """Start `options.jobs` workers that report their progress and end with the block.

    launcher: runs all commands in place of real ones.
    """
    gpus, jobs = max((one.devices.gpus for one in planned), default=0), options.jobs
    # Read before training, since files may change meanwhile.
    commit, sources = provenance.commit(root), provenance.sources(root)
    with (
        interruption.on_signals(),
        nullcontext([launcher] * jobs)
        if launcher
        else get_launchers(root, gpus, environments(jobs, gpus)) as launchers,
        Progress(title, [one.run.name for one in planned], jobs) as progress,
    ):
        warn_of_changes(root, commit, progress.say)
        warn_of_other_data(root, planned, progress.say)
        context = RunContext(root, launchers[0], progress, interruption, options, commit, sources)
        yield [TableRunner(replace(context, launcher=launch)) for launch in launchers]


def warn_of_changes(root: Path, commit: str, say: Callable[[str], None]) -> None:
    """Warn, before training, if the code differs from the recorded commit."""
    if not commit.endswith("-dirty"):
        return
    say(
        f"Warning: results are recorded as of {commit[:10]}-dirty, which means commit "
        f"{commit[:10]} and changes that nobody else has (new or changed: "
        f"{shortened(provenance.uncommitted(root))})."
    )


def warn_of_other_data(
    root: Path, planned: Sequence[PlannedRun], say: Callable[[str], None]
) -> None:
    """Warn, before training, if the page will leave out earlier results, which have other data."""
    for one in {one.run.attention: one for one in planned}.values():
        run = one.run
        found = read_results((root / run.result).parent, one.experiment.metrics, lambda _: None)
        newest = newest_by_attention(r for r in found if run_of(r) != run).get(run.attention)
        if newest is None:
            continue
        data = None
        with suppress(DataError):  # each run reports it
            data = one.describe_data(root)
        if data is None:
            continue
        if folders := provenance.different_folders(newest["data"], data):
            words = f" ({', '.join(folders)})" if any(folders) else ""
            say(
                f"Warning: {run.name} has other data than {run_of(newest).name}{words}; the page "
                "leaves out results whose data differ from the newest one's."
            )


def run_table(
    root: Path,
    planned: Sequence[PlannedRun],
    options: RunOptions,
    launcher: Launcher | None = None,
) -> int:
    """Train and measure runs of a table, `options.jobs` at once; print it, return the exit status.

    0: all done, 1: a run failed, 130: Ctrl-C, 143: SIGTERM, 138: SIGUSR1. launcher: runs all
    commands in place of real ones.
    """
    interruption, report = Interruption(), report_of(root, planned[0])
    outcomes: dict[Run, RunFailed | None] = {}  # of the runs that ended
    shown = 0  # how many of them the page has

    def run(one: PlannedRun, worker: TableRunner) -> None:
        outcomes[one.run] = worker.run(one)

    title = f"{report.table.name}, {report.name}"
    try:
        with start_workers(root, title, planned, options, interruption, launcher) as workers:
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
    left = [p.run.name for p in planned if p.run not in done and is_recorded(root, p)]
    more = f" Not begun, and to be named with --force again: {', '.join(left)}." if left else ""
    return f"without --force {slurm_queue.RESUMES}{more}"
