"""`python -m fairseq_plugins.analysis <command>`: what an encoding or a trained model does."""

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

from fairseq_plugins.analysis import (
    awareness_command,
    extrapolation_command,
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
)


def get_parser(commands: Sequence[ModuleType] = COMMANDS) -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe analyse",
        description="What an encoding, or a model trained with it, does with positions.",
    )
    choices = parser.add_subparsers(dest="command", required=True)
    for command in commands:
        command.register(choices)
    return parser


def main(arguments: Sequence[str] | None = None, commands: Sequence[ModuleType] = COMMANDS) -> int:
    """Run a command; its exit status."""
    args = get_parser(commands).parse_args(arguments)
    return exit_status(args.program, lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
