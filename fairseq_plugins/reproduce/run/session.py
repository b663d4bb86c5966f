"""What a table's script does once it knows its runs: print, submit, or train them."""

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType

import torch

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.reproduce.experiments.base import Scale
from fairseq_plugins.reproduce.experiments.planned import PlannedRun
from fairseq_plugins.reproduce.record import results
from fairseq_plugins.reproduce.record.logs import last_lines
from fairseq_plugins.reproduce.report.page import Report
from fairseq_plugins.reproduce.run.launcher import Launcher, get_launcher
from fairseq_plugins.reproduce.run.progress import Progress
from fairseq_plugins.reproduce.run.runner import Failure, TableRunner, is_recorded
from fairseq_plugins.reproduce.run.slurm import sbatch_command

_ROOM = 2**20  # bytes that must fit where results are written


def dry_run(planned: Sequence[PlannedRun], scale: Scale, *, slurm: bool) -> list[str]:
    """The exact commands of all runs, to be typed in the repository's root."""
    before = [c for one in planned if one.pretraining for c in one.pretraining.prepare]
    prepare = dict.fromkeys([*before, *scale.prepare])
    lines = [f"# Runs: {len(planned)}. Data, where it is not there yet:", *prepare]
    printed: set[str] = set()  # what several runs start from
    for one in planned:
        run = one.run
        lines += ["", f"# {run.row}, {run.attention} attention, seed {run.seed}"]
        commands = [shlex.join(command) for command in one.commands()]
        if slurm:
            # Slurm makes no folder for a job's log.
            lines.append(shlex.join(["mkdir", "-p", run.folder.parent.as_posix()]))
            lines.append(shlex.join(sbatch_command(run, one.devices.gpus)))
            lines += [f"#   runs: {command}" for command in commands]
        else:
            lines += [command for command in commands if command not in printed]
            printed.update(commands)
    return lines


def require(root: Path, planned: Sequence[PlannedRun], *, force: bool) -> None:
    """Refuse to start where a run that is still to be made lacks data, GPUs or room for its result.

    Data that does not go with that of the pre-training is refused, too.

    Raises:
        ValueError: naming the folder and the script that makes it, the file, or the number of GPUs.
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
    if gpus > torch.cuda.device_count():
        raise ValueError(
            f"`--gpus` must be at most the {torch.cuda.device_count()} of this machine, "
            f"but is {gpus} instead."
        )


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
        (training.data, one.pretraining.data[0]): one.experiment
        for one in planned
        if one.pretraining
        for training in one.trainings
    }
    for (data, before), experiment in pairs.items():
        experiment.check_data(root / data, root / before)


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGINT and SIGTERM raise, also where a shell started this program with SIGINT ignored."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise Terminated if signum == signal.SIGTERM else KeyboardInterrupt

    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, interrupt) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _reports_before(root: Path, planned: Sequence[PlannedRun]) -> list[Report]:
    """Those of the tables whose runs these started from."""
    found = {before.run.table: before for one in planned for before in one.before}
    return [
        Report(root, TABLES[name], before.experiment.scales[before.run.scale])
        for name, before in found.items()
    ]


def render(root: Path, table: Table, scale: Scale, planned: Sequence[PlannedRun]) -> None:
    """Make the pages and figures of the results there are, and show the table."""
    report = Report(root, table, scale)
    for each in (report, *_reports_before(root, planned)):
        each.write()
        each.draw()
        for sentence in each.read()[1]:
            print(f"Left out of {each.page}: {sentence}", file=sys.stderr)
    ranked = table.ranked_by.label
    whose = "in the paper and, at scale {}, ours" if table.is_printed else "at scale {}"
    heading = f"{table.source}: {ranked} {whose.format(scale.name)}"
    print(f"\n{heading}\n\n{report.text()}\n\nThe whole table: {report.page}")


def work(
    root: Path,
    table: Table,
    scale: Scale,
    planned: Sequence[PlannedRun],
    *,
    force: bool,
    launcher: Launcher | None = None,
) -> int:
    """Bring every run to its result and show the table; returns the exit status."""
    gpus = max((one.devices.gpus for one in planned), default=0)
    report = Report(root, table, scale)
    failures: list[Failure] = []
    names = [one.run.name for one in planned]
    try:
        with (
            _signals_interrupt(),
            nullcontext(launcher) if launcher else get_launcher(root, gpus) as launch,
            Progress(f"{table.name}, {scale.name}", names) as progress,
        ):
            runner = TableRunner(root, launch, progress, force=force)
            for one in planned:
                failure = runner.run(one)
                if failure:
                    failures.append(failure)
                with suppress(OSError):  # said at the end
                    report.write()
        try:
            render(root, table, scale, planned)
        except OSError as error:
            failures.append(Failure(report.page.as_posix(), str(error), None))
    except KeyboardInterrupt as interruption:
        print("\nStopped. The same command goes on from the last checkpoint.")
        return 143 if isinstance(interruption, Terminated) else 130
    for failure in failures:
        print(f"\nFAILED {failure.name}: {failure.reason}")
        if failure.log:
            print(f"  log: {failure.log.relative_to(root)}")
            print("\n".join(f"  | {line}" for line in last_lines(failure.log)))
    return 1 if failures else 0
