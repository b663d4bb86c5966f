"""The command `scripts/paper.sh`: all tables and figures of a paper, here or as Slurm jobs."""

import argparse
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.root import configs_folder, root_folder
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.papers import PAPERS, TABLES
from fairseq_plugins.runner import cost_estimates, slurm_submission
from fairseq_plugins.runner.plan import devices_of, plan
from fairseq_plugins.runner.preflight import check_ready
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import is_recorded
from fairseq_plugins.runner.slurm_job import Job, script

_STOPPED = (130, 143)  # exit statuses after Ctrl-C and SIGTERM
_TIMED = {"lrpe": "table9"}  # a script of its own, which only measures speed


def plan_paper(root: Path, args: argparse.Namespace) -> list[list[PlannedRun]]:
    """Plan the runs of each table.

    Raises ValueError: rows that no table has, a number of GPUs that does not divide a batch, or
    more runs in a job than a node has GPUs for.
    """
    tables, used = [], set()
    for name in PAPERS[args.paper]:
        table = TABLES[name]
        scale = EXPERIMENTS[table.experiment].scales.get(args.scale)
        if scale is None:
            raise ValueError(
                f"`--scale` must be one that all tables of the paper have, but {name} has no "
                f"{args.scale}; give it to the scripts of single tables."
            )
        devices = devices_of(scale, args.gpus, args.jobs, is_slurm=args.slurm or args.dry_run)
        own = [row for row in table.row_names if args.rows is None or row in args.rows]
        used |= set(own)
        if not own:
            continue
        seeds = args.seeds or (table.seeds if args.scale == "paper" else (1,))
        planned, _ = plan(configs_folder(root), table, scale, devices, rows=own, seeds=seeds)
        tables.append(planned)
    if unknown := set(args.rows or ()) - used:
        raise ValueError(f"`--rows` has {', '.join(sorted(unknown))}, which is in no table.")
    return tables


def _timing(root: Path, args: argparse.Namespace, gpus: int) -> tuple[str, ...]:
    """Return the command of the table of speeds; empty for none, as without a checkout.

    At scale toy its results are in a folder named after the scale.
    """
    name = _TIMED.get(args.paper)
    if name is None or not (root / "scripts" / f"{name}.sh").is_file():
        return ()
    return (
        f"scripts/{name}.sh",
        *(("--rows", ",".join(args.rows)) if args.rows else ()),
        *(("--device", "gpu") if gpus else ()),
        *(("--quick", "--name", args.scale) if args.scale == "toy" else ()),
    )


def _timing_jobs(root: Path, args: argparse.Namespace, gpus: int) -> list[Job]:
    """Return the job of the table of speeds, alone on its node, unless it is recorded as done."""
    command = _timing(root, args, gpus)
    if not command:
        return []
    table = _TIMED[args.paper]
    folder = root_folder("checkpoints") / table / args.scale
    done, name = folder / "done.json", f"{table}-{args.scale}"
    recorded = read_object(root / done) or {}
    page = recorded.get("page")
    has_page = isinstance(page, str) and (root / page).is_file()
    if has_page and recorded.get("command") == [*command]:
        print(f"{name}: done already")
        return []
    words = (*command, "--srun", "--done", done.as_posix())
    return [Job(name, folder, words, min(1, gpus), alone=args.scale != "toy")]


def make(root: Path, args: argparse.Namespace) -> int:
    """Make all tables of a paper, submit them, or print their cost; return the exit status.

    args: of `table_options.get_paper_parser`. Raises OptionError: a wrong one.
    """
    try:
        cost_estimates.check_rate(args.tflops)
        tables = plan_paper(root, args)
        if args.slurm and not args.dry_run:
            for planned in tables:
                check_ready(root, [one for one in planned if not is_recorded(root, one)], jobs=0)
    except (ValueError, OSError) as error:
        raise OptionError(str(error)) from None
    gpus = max(one.devices.gpus for planned in tables for one in planned)
    options = RunOptions(jobs=args.jobs, max_running=args.max_running, keep=args.keep)
    if args.dry_run:
        jobs = slurm_submission.make_jobs(root, tables, options) + _timing_jobs(root, args, gpus)
        at_once = args.max_running * args.jobs
        plan_lines = cost_estimates.describe(
            root, tables, jobs, args.tflops, args.keep or "all", at_once
        )
        print("\n".join(plan_lines))
        return 0
    if args.slurm:
        return slurm_submission.submit(root, tables, options, _timing_jobs(root, args, gpus))
    return _work(root, tables, args, _timing(root, args, gpus))


def _work(
    root: Path,
    tables: Sequence[Sequence[PlannedRun]],
    args: argparse.Namespace,
    timing: Sequence[str],
) -> int:
    """Make the tables by their scripts, one after the other; return the first status but 0.

    Stops after a script that was interrupted.
    """
    commands = []
    for planned in tables:
        words = script(*(one.run for one in planned), has_cells=False)
        words += ["--seeds", ",".join(map(str, args.seeds))] if args.seeds else []
        words += ["--gpus", str(args.gpus)] if args.gpus is not None else []
        words += ["--keep", args.keep] if args.keep else []
        commands.append(words)
    first_failure = 0
    for words in [*commands, *([[*timing]] if timing else [])]:
        status = _run(root, words)
        if status in _STOPPED:
            return status
        first_failure = first_failure or status
    return first_failure


def _run(root: Path, words: Sequence[str]) -> int:
    """Run a command, hand it the signals that this process gets, and return its exit status.

    `subprocess.run` would kill it while it stops its trainings and prints how to resume.
    """
    with subprocess.Popen(words, cwd=root) as process:
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, lambda kind, _: process.send_signal(kind)) for kind in kinds]
        try:
            status = process.wait()
            return 128 - status if status < 0 else status
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
