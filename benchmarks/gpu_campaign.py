"""`scripts/gpu_campaign.sh`: tests and measurements that need a GPU, within a time budget."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.context import ROOT, check_device, say, select
from benchmarks.record import Result, is_current, record
from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.option_types import words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import from_root
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.runner.launcher import ProcessLauncher

DONE, FAILED, CUT_OFF, LEFT = "done", "failed", "cut off", "left"
TAIL_LINES = 15
_FIRST = ("cross_entropy", "lm_step", "causal", "memory", "bias")  # the most important ones
_MOST_WORKERS = 12  # of the tests; each compiles kernels on a core, and they share the GPU


@dataclass(frozen=True)
class Part:
    """A part of the campaign: a command run in the repository's root, with estimated minutes."""

    name: str
    summary: str
    command: tuple[str, ...]
    minutes: float


def parts(output: Path, *, quick: bool, force: bool) -> list[Part]:
    """List all parts: tests, then benchmarks; with `quick` these are tiny and run on a CPU."""
    from benchmarks.catalog import BENCHMARKS  # slow to import; --help stays fast

    workers = ("-n", str(min(usable_cores(), _MOST_WORKERS)), "--dist", "worksteal")
    tests = ("pytest", "-q", *workers, "-m", "gpu", "tests/gpu")
    size = ("--quick",) if quick else ("--device", "gpu")
    more = (*size, *["--force"] * force, "--output", str(output))
    names = [n for n in dict.fromkeys((*_FIRST, *BENCHMARKS)) if "gpu" in BENCHMARKS[n].devices]
    found = [("tests", "the tests that need a GPU", tests, 4.0)]
    for name in names:
        one, words = BENCHMARKS[name], ("benchmarks", "--only", name, *more)
        found.append((name, one.summary, words, one.minutes))
    return [
        Part(name, summary, (sys.executable, "-m", *words), 1.0 if quick else minutes)
        for name, summary, words, minutes in found
    ]


@dataclass
class Campaign:
    """Parts with a common budget of minutes.

    output: folder of states/<part>.json, logs/<part>.log and the parts' results.
    """

    output: Path
    parts: Sequence[Part]
    minutes: float
    quick: bool = False
    force: bool = False
    say: Callable[[str], None] = say
    began: float = field(default_factory=time.monotonic)

    @property
    def gpus(self) -> int:
        return 0 if self.quick else 1

    def minutes_left(self) -> float:
        return self.minutes - (time.monotonic() - self.began) / 60

    def state_path(self, part: Part) -> Path:
        return self.output / "states" / f"{part.name}.json"

    def state(self, part: Part) -> Result:
        """Read the recorded state of a part; empty if there is none."""
        return read_object(self.state_path(part)) or {}

    def is_done(self, part: Part) -> bool:
        """Return whether a part is done under the present circumstances."""
        expected = {"status": DONE, "quick": self.quick}
        return not self.force and is_current(self.state_path(part), expected, self.gpus)

    def estimate(self, part: Part) -> float:
        """Estimate a part's minutes, from its last attempt of the same size if there is one."""
        state = self.state(part)
        seconds = state.get("wall_seconds")
        if state.get("quick") != self.quick or not isinstance(seconds, int | float):
            return part.minutes
        if state.get("status") == DONE:
            return seconds / 60
        # A part that was cut off takes longer than it ran.
        return max(part.minutes, 1.5 * seconds / 60 if state.get("status") == CUT_OFF else 0.0)

    def run(self, *, dry: bool = False) -> int:
        """Run the parts that are not done and fit the budget; return the exit status.

        dry: only print what would be done.
        """
        lines, left = [], self.minutes
        for number, part in enumerate(self.parts, 1):
            head = f"[{number}/{len(self.parts)}] {part.name}"
            takes, status = self.estimate(part), LEFT
            left = left if dry else self.minutes_left()
            if self.is_done(part):
                status = DONE
                self.say(f"{head}: done before")
            elif takes > left:
                self.say(
                    f"{head}: not started, it takes {takes:.1f} min and only {max(left, 0):.1f} "
                    "min are left"
                )
            elif dry:
                self.say(f"{head}: about {takes:.1f} min\n  {' '.join(part.command)}")
                left -= takes
            else:
                self.say(f"{head}: {part.summary} (about {takes:.1f} of {left:.1f} min)")
                status = self._run_part(part)
            seconds = "-" if status == LEFT else f"{self.state(part)['wall_seconds']:.0f}"
            lines.append([part.name, status, seconds])
        if dry:
            return 0
        self.say("\n" + markdown_table(["part", "state", "seconds"], lines, left=2))
        self.say(f"results are in {self.output}; the same command resumes the campaign")
        return 0 if all(status == DONE for _, status, _ in lines) else 1

    def _run_part(self, part: Part) -> str:
        log = self.output / "logs" / f"{part.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)

        def work() -> Result:
            try:
                code = ProcessLauncher(ROOT)(part.command, log, self._check_time)
            except TimeoutError:
                return {"status": CUT_OFF, "exit_status": None}
            return {"status": FAILED if code else DONE, "exit_status": code}

        fields, words = {"part": part.name, "quick": self.quick}, ("python", *part.command[1:])
        state = record(self.state_path(part), fields, work, words, self.gpus)
        if state["status"] != DONE:
            self.say(f"  {state['status']}; the end of {log}:")
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            self.say("\n".join(f"  | {line}" for line in lines[-TAIL_LINES:]))
        return str(state["status"])

    def _check_time(self, lines: list[str]) -> None:
        if self.minutes_left() <= 0:
            raise TimeoutError("the budget ran out while a part was running")


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="gpu_campaign.sh",
        description="Run the tests and measurements that need a GPU within a budget of minutes. A "
        "part that is done is skipped, a part that does not fit into the rest of the budget is not "
        "started, and a failed part does not stop the others.",
        epilog="A part with other sources, versions or hardware is run again. Exit status: 0 all "
        "done, 1 a part failed or is left, 2 nothing was started, 130 Ctrl-C.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=40.0, metavar="N", help="the budget (default: 40)")
    add("--only", type=words("--only"), metavar="A,B", help="parts to run (default: all)")
    add("--list", action="store_true", help="list the parts with their minutes and do nothing")
    add("--dry-run", action="store_true", help="print the parts that would run, with commands")
    add("--quick", action="store_true", help="tiny sizes on a CPU, as a check")
    add("--force", action="store_true", help="repeat parts that are done")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of results, logs and states (default: outputs/gpu_campaign, with --quick "
        "outputs/gpu_campaign_quick); give the repository to store results as `make bench-gpu`",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the campaign and return its exit status.

    Raises:
        ValueError: an unknown part, no minutes, or there is no GPU.
    """
    if not args.minutes > 0:
        raise ValueError(f"`--minutes` must be above 0, but is {args.minutes:g}.")
    name = "gpu_campaign_quick" if args.quick else "gpu_campaign"
    output = (args.output or ROOT / "outputs" / name).resolve()
    # Relative if possible: results record the commands, and must not name this machine's folders.
    found = parts(from_root(output), quick=args.quick, force=args.force)
    names = select(args.only, [part.name for part in found])
    found = [part for part in found if part.name in names]
    campaign = Campaign(output, found, args.minutes, quick=args.quick, force=args.force)
    if args.list:
        for part in found:
            say(f"{part.name:26} {campaign.estimate(part):5.1f} min  {part.summary}")
        return 0
    if not args.dry_run:
        check_device("cpu" if args.quick else "gpu")
    return campaign.run(dry=args.dry_run)


main = command(get_parser, run, quiet=True, if_stopped="Stopped; the same command goes on.")

if __name__ == "__main__":
    sys.exit(main())
