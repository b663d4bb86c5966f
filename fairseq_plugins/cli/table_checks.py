"""Checks of options of `fairseq-pe table`."""

import argparse

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.extras import install_command, is_installed
from fairseq_plugins.common.parser import Parser


def check_slurm_options(args: argparse.Namespace, parser: Parser, jobs: int | None = None) -> None:
    """Refuse options of Slurm jobs without `--slurm`.

    jobs: the default of `--jobs`, where that is such an option.
    """
    given = {"max-running": args.max_running != 0, "jobs": jobs is not None and args.jobs != jobs}
    for option, is_given in given.items():
        if is_given and not args.slurm:
            parser.error(f"`--{option}` must be left out without `--slurm`.")


def check_tracker(tracker: str | None) -> None:
    """Refuse a tracker of `--log` that is not installed."""
    modules = {"tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",)}
    if tracker and not any(is_installed(module) for module in modules[tracker]):
        raise OptionError(
            f"`--log {tracker}` needs {modules[tracker][0]}, which is not installed; "
            f"{install_command('logging')} brings it"
        )
