"""What a table's script does once it knows its runs: print, submit, or train them."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fairseq_plugins.common import provenance
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.root import from_root
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records import results
from fairseq_plugins.records.logs import THE_PAGE, last_lines
from fairseq_plugins.records.runs import Run, Study
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import queue
from fairseq_plugins.runner.attempt import Context, Stage
from fairseq_plugins.runner.chain import Job
from fairseq_plugins.runner.commands import with_folders
from fairseq_plugins.runner.disk import check_room
from fairseq_plugins.runner.interruption import Interruption, OutOfTime, Terminated
from fairseq_plugins.runner.jobs import (
    check_gpus,
    environments,
    share_of_threads,
    side_by_side,
    usable_threads,
)
from fairseq_plugins.runner.keep import Keep
from fairseq_plugins.runner.launcher import Launcher, get_launchers
from fairseq_plugins.runner.progress import Progress
from fairseq_plugins.runner.runner import Failure, Pretrainings, TableRunner, is_recorded


@dataclass(frozen=True)
class Way:
    """How the runs of a call are made.

    Attributes:
        jobs: runs at once.
        force: whether what is done is made again.
        job: the number of the Slurm job that this process is, None outside.
        stage: what of each run is done here.
        keep: which checkpoints stay when a run is measured.
        checkpoints: whether a run is not done while its checkpoint is not here.
    """

    jobs: int = 1
    force: bool = False
    job: int | None = None
    stage: Stage = "all"
    keep: Keep = "all"
    checkpoints: bool = False


_ROOM = 2**20  # bytes that must fit where results are written


def dry_run(
    planned: Sequence[PlannedRun], scale: Scale, jobs: Sequence[Job] | None = None
) -> list[str]:
    """The exact commands of all runs, to be typed in the repository's root.

    jobs: of Slurm, where they are submitted.
    """
    before = [c for one in planned if one.pretraining for c in one.pretraining.prepare]
    prepare = dict.fromkeys([*before, *scale.prepare])
    lines = [f"# Runs: {len(planned)}. Data, where it is not there yet:", *prepare]
    printed: set[str] = set()  # what several runs start from
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
    """What submits jobs, in their order, with the numbers of those before in variables."""
    lines: list[str] = []
    for folder in dict.fromkeys(job.folder for job in jobs):  # Slurm makes none for a log
        lines += ["", shlex.join(["mkdir", "-p", folder.as_posix()])]
    for job in jobs:
        lines.append("")
        waits = {"well": job.after, "anyhow": job.finally_after}
        lines += [f"# {job.name}"]
        lines += [
            f"#   after, ended {how}: {', '.join(names)}" for how, names in waits.items() if names
        ]
        lines.append(shlex.join(job.sbatch({})))
    return lines


def require(
    root: Path,
    planned: Sequence[PlannedRun],
    *,
    force: bool,
    jobs: int = 1,
    keep: Keep = "all",
) -> None:
    """Refuse to start where a run that is still to be made lacks data, GPUs or room for its result.

    Data that does not go with that of the pre-training is refused, too.

    jobs: runs at once in this process, 0 where others make them. keep: what stays of them.

    Raises:
        ValueError: naming the folder and the script that makes it, the file, or the number of GPUs
            or the room that `jobs` runs at once take.
    """
    to_make = [p for p in planned if force or not is_recorded(root, p)]
    for one in to_make:
        for missing in one.missing_data(root):
            raise ValueError(
                f"the data folder {missing.folder} lacks {', '.join(missing.files)}; "
                f"{' and '.join(missing.prepare)} makes it."
            )
        results.check_data(one.describe_data(root))
    _check_pretraining(root, to_make)
    for folder in {f.parent for p in to_make for f in (p.run.result, p.run.folder)}:
        _require_room(root, folder)
    gpus = max((p.devices.gpus for p in to_make if not p.devices.srun), default=0)
    if jobs:
        check_gpus(jobs, gpus, torch.cuda.device_count())
        check_room(root, to_make, jobs, keep)


def default_jobs(
    root: Path, planned: Sequence[PlannedRun], devices: Devices, *, force: bool
) -> int:
    """On a CPU a run for each thread: models that are trained there keep no more than one busy."""
    if devices.gpus or devices.srun:
        return 1
    to_make = sum(force or not is_recorded(root, one) for one in planned)
    return max(1, min(to_make, usable_threads()))


def _require_room(root: Path, folder: Path) -> None:
    """Refuse a folder in which a file of the size of many results cannot be written.

    Raises:
        ValueError: naming the folder and the reason.
    """
    try:
        (root / folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / folder) as probe:
            probe.write(bytes(_ROOM))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise ValueError(f"{folder} cannot be written to ({error.strerror}).") from None


def _check_pretraining(root: Path, planned: Sequence[PlannedRun]) -> None:
    """Refuse data to fine-tune on that the pre-trained model would not understand."""
    pairs = {
        (training.data, (one.pretraining or one).data[0]): one.experiment
        for one in planned
        for training in one.trainings
    }
    for (data, before), experiment in pairs.items():
        experiment.check_data(root / data, root / before)


def _reports_before(root: Path, planned: Sequence[PlannedRun]) -> list[Report]:
    """Those of the tables whose runs these started from."""
    found = {before.run.table: before for one in planned for before in one.before}
    return [
        Report(root, TABLES[name], before.experiment.scales[before.run.scale])
        for name, before in found.items()
    ]


def _study_of(planned: Sequence[PlannedRun]) -> Study | None:
    """That of all runs of a call."""
    return planned[0].run.study if planned else None


def render(root: Path, table: Table, scale: Scale, planned: Sequence[PlannedRun]) -> None:
    """Make the pages and figures of the results there are, and show the table."""
    report = Report(root, table, scale, _study_of(planned))
    for each in (report, *_reports_before(root, planned)):
        for sentence in each.make():
            print(f"Left out of {each.page}: {sentence}", file=sys.stderr)
    ranked = table.ranked_by.label
    is_printed = report.shown_table.is_printed
    whose = "in the paper and, at scale {}, ours" if is_printed else "at scale {}"
    heading = f"{table.source}: {ranked} {whose.format(scale.name)}"
    heading += f", study {report.study.name}" if report.study else ""
    print(f"\n{heading}\n\n{report.text()}\n\n{THE_PAGE}{report.page}")


@contextmanager
def crew(
    root: Path,
    title: str,
    planned: Sequence[PlannedRun],
    way: Way,
    interruption: Interruption,
    launcher: Launcher | None = None,
) -> Iterator[list[TableRunner]]:
    """Runners for so many runs at once, which show what they do and end with the block.

    launcher: of all commands, in place of real ones.
    """
    gpus, jobs = max((one.devices.gpus for one in planned), default=0), way.jobs
    names = [one.run.name for one in planned]
    # Now: what runs is the code of this moment.
    commit, sources = provenance.commit(root), provenance.sources(root)
    threads = share_of_threads(jobs) if jobs > 1 and not gpus else None
    with (
        interruption.on_signals(),
        nullcontext([launcher] * jobs)
        if launcher
        else get_launchers(root, gpus, environments(jobs, gpus)) as launchers,
        Progress(title, names, jobs) as progress,
    ):
        if commit.endswith("-dirty"):
            progress.say(_unclean(root, commit))
        pretrainings = Pretrainings(interruption)
        context = Context(
            root, launchers[0], progress, interruption, way.force, commit, sources, threads,
            job=way.job, stage=way.stage, keep=way.keep,
            checkpoints=way.checkpoints,
        )  # fmt: skip
        yield [TableRunner(replace(context, launcher=launch), pretrainings) for launch in launchers]


def _unclean(root: Path, commit: str) -> str:
    """What a user who wants to publish has to know before the hours that it takes."""
    found = provenance.uncommitted(root)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"results will name {commit[:10]}-dirty, which is no commit, since these are not "
        f"committed: {', '.join(found[:3])}{more}"
    )


def _work(
    root: Path,
    table: Table,
    scale: Scale,
    planned: Sequence[PlannedRun],
    way: Way,
    interruption: Interruption,
    launcher: Launcher | None,
    outcomes: dict[Run, Failure | None],
) -> None:
    """Bring every run to its result; `outcomes` has those that ended, and why they failed."""
    report = Report(root, table, scale, _study_of(planned))
    title = f"{table.name}, {report.name}"

    def bring(one: PlannedRun, runner: TableRunner) -> None:
        outcomes[one.run] = runner.run(one)

    with crew(root, title, planned, way, interruption, launcher) as runners:
        for _ in side_by_side(bring, planned, runners, interruption):
            with suppress(OSError, DataError):  # said at the end
                report.write()
        interruption.check()


def _how_to_go_on(
    root: Path, planned: Sequence[PlannedRun], outcomes: Mapping[Run, Failure | None]
) -> str:
    """Which command goes on with runs of which `--force` has begun some.

    outcomes: of those that ended.
    """
    done = {run for run, failure in outcomes.items() if failure is None}
    left = [p.run.name for p in planned if p.run not in done and is_recorded(root, p)]
    more = f" Not begun, and to be named with --force again: {', '.join(left)}." if left else ""
    return f"without --force {queue.GOES_ON}{more}"


def work(
    root: Path,
    table: Table,
    scale: Scale,
    planned: Sequence[PlannedRun],
    *,
    force: bool,
    jobs: int = 1,
    job: int | None = None,
    stage: Stage = "all",
    keep: Keep = "all",
    checkpoints: bool = False,
    launcher: Launcher | None = None,
) -> int:
    """Bring every run to its result, `jobs` at once, and show the table; returns the exit status.

    Args:
        root: the repository.
        table: of the runs.
        scale: likewise.
        planned: the runs.
        force: whether what is done is made again.
        jobs: runs at once.
        job: the number of the Slurm job that this process is, None outside.
        stage: what of each run is done here.
        keep: which checkpoints stay when a run is measured.
        checkpoints: whether a run is not done while its checkpoint is not here.
        launcher: of all commands, in place of real ones.
    """
    way, interruption = Way(jobs, force, job, stage, keep, checkpoints), Interruption()
    outcomes: dict[Run, Failure | None] = {}
    try:
        _work(root, table, scale, planned, way, interruption, launcher, outcomes)
        failures = [failure for one in planned if (failure := outcomes.get(one.run))]
        try:
            render(root, table, scale, planned)
        except (OSError, DataError) as error:
            page = Report(root, table, scale, _study_of(planned)).page
            failures.append(Failure(page.as_posix(), str(error), None))
    except KeyboardInterrupt as stop:
        how = _how_to_go_on(root, planned, outcomes) if force else queue.GOES_ON
        if isinstance(stop, OutOfTime):
            return queue.go_on_later(job, has_gained=interruption.has_gained, how=how)
        print(f"\nStopped. The same command {how}")
        return 143 if isinstance(stop, Terminated) else 130
    for failure in failures:
        print(f"\nFAILED {failure.name}: {failure.reason}")
        if failure.log:
            print(f"  log: {from_root(failure.log, root)}")
            print("\n".join(f"  | {line}" for line in last_lines(failure.log)))
    return 1 if failures else 0
