"""``fairseq-pe analyse``: measure and draw encodings, models and results."""

import argparse
import sys

from fairseq_plugins.cli import analyse_bert, analyse_checkpoints, analyse_encodings
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser

# Each adds a command, whose run imports what takes seconds.
COMMANDS = (
    analyse_checkpoints.add_extrapolation,
    analyse_encodings.add_picture,
    analyse_checkpoints.add_attention,
    analyse_checkpoints.add_similarity,
    analyse_checkpoints.add_identical_words,
    analyse_encodings.add_awareness,
    analyse_bert.add_correlations,
    analyse_bert.add_figure,
)


def get_parser() -> argparse.ArgumentParser:
    """Build the parser with a subcommand for each of `COMMANDS`."""
    parser = Parser(
        prog="fairseq-pe analyse",
        description="Measure and draw position encodings, trained models and results.",
    )
    choices = parser.add_subparsers(dest="command", required=True)
    for add in COMMANDS:
        add(choices)
    return parser


main = command(get_parser, lambda args: args.run(args), quiet=True)

if __name__ == "__main__":
    sys.exit(main())
