"""``fairseq-pe analyse``: measure and draw encodings, models and results."""

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

from fairseq_plugins.cli import (
    awareness_command,
    correlations,
    extrapolation_command,
    figure,
    identical_words_command,
    picture_command,
)
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser

# Modules with `register(commands)`, which import what takes seconds only when they run.
COMMANDS: tuple[ModuleType, ...] = (
    extrapolation_command,
    picture_command,
    identical_words_command,
    awareness_command,
    correlations,
    figure,
)


def get_parser() -> argparse.ArgumentParser:
    """Build the parser with a subcommand for each module of `COMMANDS`."""
    parser = Parser(
        prog="fairseq-pe analyse",
        description="What an encoding, or a model trained with it, does with positions.",
    )
    choices = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.register(choices)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    args = get_parser().parse_args(arguments)
    return exit_status(args.program, lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
