"""`python -m fairseq_plugins.data --output DIR [--seed 1] [--train-sentences N] ...`."""

import argparse
import sys
from pathlib import Path

from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.generated import add_arguments, sentences_from, write_corpus


def _get_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m fairseq_plugins.data", description="Write the generated corpus."
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to write")
    add_arguments(parser)
    return parser


def _write(args: argparse.Namespace) -> None:
    about = write_corpus(args.output, seed=args.seed, sentences=sentences_from(args))
    for split, facts in about["splits"].items():
        print(f"{split}: {facts['sentences']} sentences, {facts['words']} words")


if __name__ == "__main__":
    sys.exit(command(_get_parser, _write)())
