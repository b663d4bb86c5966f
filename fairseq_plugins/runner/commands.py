"""fairseq's commands, run by this interpreter."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.root import IS_CHECKOUT, PACKAGE, configs_folder
from fairseq_plugins.experiments.training import SRUN
from fairseq_plugins.records.logs import last_lines
from fairseq_plugins.runner.launcher import Launcher, OnLines

# Modules of this interpreter, so that commands do not depend on PATH.
_MODULES = {
    "fairseq-hydra-train": ("-m", "fairseq_cli.hydra_train"),
    "fairseq-eval-lm": ("-m", "fairseq_cli.eval_lm"),
    "fairseq-generate": ("-m", "fairseq_cli.generate"),
    "fairseq-validate": ("-m", "fairseq_cli.validate"),
    "python": (),
}

_IN_JOBS = {"fairseq-hydra-train": ("-m", "fairseq_plugins.runner.training_job")}
# Set in a container to the interpreter outside, where srun starts commands.
_OUTSIDE = "FAIRSEQ_PE_PYTHON"


def with_folders(command: Sequence[str]) -> list[str]:
    """Return a command with the package's own folders of recipes if it is installed."""
    words = list(command)
    if IS_CHECKOUT:
        return words
    folders = {"--config-dir": configs_folder(), "--user-dir": PACKAGE}
    for index, option in enumerate(words[:-1]):
        if option in folders:
            words[index + 1] = str(folders[option])
    # The recipes name the package, which fairseq would only find beside itself.
    return [*words, f"common.user_dir={PACKAGE}"] if "--config-dir" in words else words


def executable(command: Sequence[str], *, in_job: bool = False) -> list[str]:
    """Return a command with this interpreter in place of fairseq's command names.

    in_job: whether Slurm may end the training at any moment.
    """
    words = with_folders(command)
    modules = _MODULES | _IN_JOBS if in_job else _MODULES
    start = len(SRUN) if tuple(words[: len(SRUN)]) == SRUN else 0
    return [
        *words[:start],
        os.environ.get(_OUTSIDE, sys.executable) if start else sys.executable,
        *modules[words[start]],
        *words[start + 1 :],
    ]


def run_command(
    launcher: Launcher, command: Sequence[str], log: Path, on_lines: OnLines = lambda lines: None
) -> None:
    """Run a command to its end (WorkError: it failed, with the end of its log)."""
    if status := launcher(executable(command), log, on_lines):
        end = "\n".join(last_lines(log))
        raise WorkError(f"{log} ended with status {status}\n{end}")
