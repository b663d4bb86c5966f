"""The context that all runs of a command share, and the errors of runs."""

from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.launcher import Launcher
from fairseq_plugins.runner.progress import Progress
from fairseq_plugins.runner.run_options import RunOptions


class RunFailed(Exception):
    """A run failed; `log` is the output of the command that failed."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.log = log


class NoModel(RunFailed):
    """The trained model cannot be measured; trying again would not help."""


@dataclass(frozen=True)
class RunContext:
    """The launcher, options and code version that all runs of a command share.

    Attributes:
        root: folder of results and checkpoints.
        launcher: starts the commands.
        interruption: checked wherever a run can stop.
        commit: of the running code.
        sources: digest of the running code.
        threads: of the commands, if not those of this process.
        failed_starts: errors of the runs that others were to start from; no worker tries again.
    """

    root: Path
    launcher: Launcher
    progress: Progress
    interruption: Interruption
    options: RunOptions
    commit: str
    sources: str
    threads: int | None = None
    failed_starts: dict[Run, RunFailed] = field(default_factory=dict)

    @property
    def in_job(self) -> bool:
        return self.options.job is not None


def summary(result: Result) -> str:
    """Format a result's last two columns in one line."""
    numbers = result["metrics"]
    columns = [c for c in TABLES[result["table"]].columns if numbers.get(c.metric) is not None]
    return ", ".join(f"{c.label} {numbers[c.metric]:.{c.digits}f}" for c in columns[-2:])
