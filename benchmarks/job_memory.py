"""Peak memory of a table's job on a CPU, which `--slurm` requests.

    python -m benchmarks.job_memory --scale mini

For each family of runs, one run is trained and evaluated by its job's command, in a copy of the
code whose trainings end after a few updates, since memory is constant from the first ones on. The
proportional set size (PSS) of all processes is sampled twice a second, so that shared pages count
once; libraries that other programs use at the same time count in part, at most 0.1 GiB.

The row is `spe_conv`, whose training step needs most memory: 205 MiB of tensors for 32 samples of
128 in a RoBERTa of scale mini, where Base needs 80.
"""

import argparse
import functools
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.context import ROOT, add_options, context_of
from benchmarks.record import Result, record
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import number, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import FOLDER_VARIABLES, configs_folder, root_folder

# The table of the measured run, by family of `runner/slurm_job.py`.
MEASURED = {
    "lm": "table2",
    "mlm": "table8",
    "glue": "bert_table3",  # LRPE's tables have the same models, lengths and batches
    "squad": "bert_table4",
    "mt": "table4",
}
SCALES = ("toy", "mini")  # scales that train on a CPU
ROW, ATTENTION = "spe_conv", "vanilla"
_COPIED = ("configs", "fairseq_plugins", "scripts")
_BUDGETS = re.compile(r"^( *(?:max_update|warmup_updates): )(\d+)", re.MULTILINE)
_MIB = 2**20


def make_copy(folder: Path, most: int) -> None:
    """Copy what a job needs, with at most `most` updates per training (half of them warm-up).

    The data folder is linked.
    """
    for name in _COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    (folder / "data").symlink_to(ROOT / root_folder("data"))

    def capped(found: re.Match[str]) -> str:
        limit = most if "max" in found[1] else most // 2
        return f"{found[1]}{min(int(found[2]), limit)}"

    for path in (folder / "configs").rglob("*.yaml"):
        path.write_text(_BUDGETS.sub(capped, path.read_text()))


def measure(job: Sequence[str], most: int) -> Result:
    """Measure the peak memory of a job's command in MiB, and count the samples.

    Raises:
        WorkError: the job failed; the message has the end of its log.
    """
    from fairseq_plugins.common.memory import PeakOfChildren
    from fairseq_plugins.runner.launcher import ProcessLauncher

    with tempfile.TemporaryDirectory() as name:
        copy, log = Path(name, "copy"), Path(name, "job.log")
        make_copy(copy, most)
        own = {"PYTHON": sys.executable, "PYTHONPATH": str(copy)}
        own["OMP_NUM_THREADS"] = "1"  # as in a job with one core
        own |= {variable: kind for kind, variable in FOLDER_VARIABLES.items()}  # of the copy
        launch = ProcessLauncher(copy, own)
        with PeakOfChildren() as peak:
            status = launch(job, log, lambda lines: None)
        if status:
            tail = log.read_text(errors="replace")[-3000:]
            raise WorkError(f"the job ended with status {status}:\n{tail}")
    return {"found": {"peak_mib": round(peak.bytes / _MIB), "looks": peak.samples}}


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="python -m benchmarks.job_memory",
        description="Measure the peak memory of a job of each family of runs on a CPU, training "
        "and evaluation, and write benchmarks/results/<machine>/cpu/job_memory/. Needs the scale's "
        "data.",
    )
    add_options(parser)
    add = parser.add_argument
    add("--scale", choices=SCALES, default="mini", help="(default: mini)")
    families, text = [*MEASURED], f"families (default: {','.join(MEASURED)})"
    kind = words("--only", families)
    add("--only", type=kind, default=families, metavar="A,B", help=text)
    text = "most updates of each training (default: 20)"
    add("--updates", type=number("--updates", 1), default=20, metavar="N", help=text)
    return parser


def job_of(family: str, scale: str) -> list[str]:
    """Return the command of a family's job.

    Raises:
        ValueError: its data is missing.
    """
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.experiments.planned import plan_run
    from fairseq_plugins.records.runs import Run
    from fairseq_plugins.runner.slurm_job import jobs_of

    run = Run(MEASURED[family], scale, ROW, ATTENTION, seed=1)
    planned = plan_run(configs_folder(ROOT), run, Devices(0))
    for missing in planned.missing_data(ROOT):
        raise ValueError(
            f"{family}: the data folder {missing.folder} lacks {', '.join(missing.files)}; "
            f"{' and '.join(missing.prepare)} makes it."
        )
    (job,) = jobs_of([planned])
    # Outside a job, the command also makes what an earlier job would have made.
    return [word for word in job.words if word != "--srun"]


def run(args: argparse.Namespace) -> None:
    """Measure each family and write its JSON.

    Raises:
        ValueError: the data of a family is missing.
        OSError: the system is not Linux.
        WorkError: a job failed.
    """
    if not Path("/proc/self/smaps_rollup").is_file():
        raise OSError("memory is read from /proc/PID/smaps_rollup, which this system lacks")
    jobs, context = {family: job_of(family, args.scale) for family in args.only}, context_of(args)
    for family, job in jobs.items():
        fields = {
            "benchmark": "job_memory",
            "device": context.name,
            "family": family,
            "scale": args.scale,
            "settings": {"row": ROW, "attention": ATTENTION, "updates": args.updates},
            "job": job,
        }
        path = context.folder / "job_memory" / f"{family}-{args.scale}.json"
        work = functools.partial(measure, job, args.updates)
        found = record(path, fields, work, context.command)["found"]
        print(f"{family}, {args.scale}: {found['peak_mib']:,} MiB", flush=True)


main = command(get_parser, run, quiet=True)

if __name__ == "__main__":
    sys.exit(main())
