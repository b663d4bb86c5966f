"""Peak memory of a table's job on a CPU, from which `--slurm` has what it asks for.

    python -m benchmarks.job_memory --scale mini

For each family of runs one is trained and measured by the command that its job has, in a copy of
the code whose trainings end after some updates: memory stays the same from the first ones on. What
the run starts from is trained there, too, and evaluation is whole. Measured is the proportional set
size (PSS) of all processes together, twice a second: pages that several of them share count
once. Libraries that other programs on the machine use at the same time count in part, some 0.1 GiB
at most.

The row is `spe_conv`, whose training step holds more than that of any other: 205 MiB of tensors for
32 samples of 128 in a RoBERTa of scale mini, where Base's has 80.
"""

import argparse
import logging
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.context import Context
from benchmarks.options import add_machine
from benchmarks.record import ROOT, circumstances, end_of_run, load_average
from fairseq_plugins.cli.table_options import updates, words
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.provenance import without_absolute_paths
from fairseq_plugins.common.root import PLACES, configs_folder, place

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.experiments.planned import PlannedRun

# The table whose run is measured, by the family that `runner/memory.py` has.
MEASURED = {
    "lm": "table2",
    "mlm": "table8",
    "glue": "bert_table3",  # LRPE's has the same models, lengths and batches, on more examples
    "squad": "bert_table4",
    "mt": "table4",
}
SCALES = ("toy", "mini")  # those that train on a CPU
ROW, ATTENTION = "spe_conv", "vanilla"
_COPIED = ("configs", "fairseq_plugins", "scripts")
_BUDGETS = re.compile(r"^( *(?:max_update|warmup_updates): )(\d+)", re.MULTILINE)
_MIB = 2**20


def make_copy(folder: Path, most: int) -> None:
    """What a job needs of the repository, with budgets of so many updates at most; data is linked.

    A training warms up for half of them, so that its schedule is one.
    """
    for name in _COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    (folder / "data").symlink_to(ROOT / place("data"))

    def capped(found: re.Match[str]) -> str:
        limit = most if "max" in found[1] else most // 2
        return f"{found[1]}{min(int(found[2]), limit)}"

    for path in (folder / "configs").rglob("*.yaml"):
        path.write_text(_BUDGETS.sub(capped, path.read_text()))


def plan(family: str, scale: str) -> "PlannedRun":
    """The run that is measured.

    Raises:
        ValueError: its data is missing.
    """
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.experiments.planned import plan_run
    from fairseq_plugins.records.runs import Run

    run = Run(MEASURED[family], scale, ROW, ATTENTION, seed=1)
    planned = plan_run(configs_folder(ROOT), run, Devices(0))
    for missing in planned.missing_data(ROOT):
        raise ValueError(
            f"{family}: the data folder {missing.folder} lacks {', '.join(missing.files)}; "
            f"{' and '.join(missing.prepare)} makes it."
        )
    return planned


def measure(job: Sequence[str], most: int) -> dict[str, int]:
    """The peak of a job's command in MiB, and how often memory was looked at.

    Raises:
        RuntimeError: where the job fails, with the end of what it said.
    """
    from benchmarks.processes import PeakOfChildren
    from fairseq_plugins.runner.launcher import ProcessLauncher

    with tempfile.TemporaryDirectory() as name:
        copy, log = Path(name, "copy"), Path(name, "job.log")
        make_copy(copy, most)
        own = {
            **{"PYTHON": sys.executable, "PYTHONPATH": str(copy)},
            "OMP_NUM_THREADS": "1",  # as a job sets it, which has one core
            **{variable: kind for kind, variable in PLACES.items()},  # those of the copy
        }
        launch = ProcessLauncher(copy, own)
        with PeakOfChildren() as peak:
            status = launch(job, log, lambda lines: None)
        if status:
            said = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the job ended with status {status}:\n{said}")
    return {"peak_mib": round(peak.bytes / _MIB), "looks": peak.looks}


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.job_memory",
        description="Measures the peak memory of a job of each family of runs on a CPU, training "
        "and evaluation, and writes benchmarks/results/<machine>/cpu/job_memory/. The data of the "
        "scale must be there.",
    )
    add = parser.add_argument
    add("--scale", choices=SCALES, default="mini", help="(default: mini)")
    text = f"these families (default: {','.join(MEASURED)})"
    add("--only", type=words("--only", [*MEASURED]), default=[*MEASURED], metavar="A,B", help=text)
    text = "of each training, at most (default: 20)"
    add("--updates", type=updates, default=20, metavar="N", help=text)
    add_machine(parser)
    add("--output", type=Path, default=ROOT, metavar="DIR", help="in place of the repository")
    return parser


def run(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Measure each family and write a JSON of it.

    Raises:
        ValueError: the data of a family is missing.
        OSError: this is no Linux.
    """
    from fairseq_plugins.runner.slurm_job import jobs_of_run

    if not Path("/proc/self/smaps_rollup").is_file():
        raise OSError("memory is read from /proc/PID/smaps_rollup, which this system lacks")
    planned = {family: plan(family, args.scale) for family in args.only}
    folder = Context("cpu", args.output, machine=args.machine).results / "cpu" / "job_memory"
    for family, one in planned.items():
        (job,) = jobs_of_run(one, force=False)
        # A job refuses to make what an earlier one was to make; the same command outside one does,
        # and training it holds less than what is measured.
        typed = [word for word in job.words if word != "--srun"]
        load, began = load_average(), time.monotonic()
        found = measure(typed, args.updates)
        result: dict[str, Any] = {
            "benchmark": "job_memory",
            "device": "cpu",
            "family": family,
            "scale": args.scale,
            "settings": {"row": ROW, "attention": ATTENTION, "updates": args.updates},
            "found": found,
            "job": typed,
            "command": without_absolute_paths(list(command)),
            **circumstances(0),
            **end_of_run(load, time.monotonic() - began),
        }
        write_json(folder / f"{family}-{args.scale}.json", result)
        print(f"{family}, {args.scale}: {found['peak_mib']:,} MiB", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 measured, 1 not."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = get_parser().parse_args(given)
    command = ["python", "-m", "benchmarks.job_memory", *given]
    try:
        return exit_status("job_memory", lambda: run(args, command))
    except RuntimeError as error:
        print(f"job_memory: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of the libraries; this program prints
    sys.exit(main())
