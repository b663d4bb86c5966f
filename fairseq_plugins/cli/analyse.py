"""``fairseq-pe analyse``: measure and draw encodings, models and results."""

import argparse
import sys
from types import ModuleType

from fairseq_plugins.cli import (
    attention_command,
    awareness_command,
    correlations,
    extrapolation_command,
    figure,
    identical_words_command,
    picture_command,
    similarity_command,
)
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser

# Modules with `register(commands)`, which import what takes seconds only when they run.
COMMANDS: tuple[ModuleType, ...] = (
    extrapolation_command,
    picture_command,
    attention_command,
    similarity_command,
    identical_words_command,
    awareness_command,
    correlations,
    figure,
)


def get_parser() -> argparse.ArgumentParser:
    """Build the parser with a subcommand for each module of `COMMANDS`."""
    parser = Parser(
        prog="fairseq-pe analyse",
        description="Measure and draw position encodings, trained models and results.",
    )
    choices = parser.add_subparsers(dest="command", required=True)
    for module in COMMANDS:
        module.register(choices)
    return parser


main = command(get_parser, lambda args: args.run(args), quiet=True)

if __name__ == "__main__":
    sys.exit(main())
