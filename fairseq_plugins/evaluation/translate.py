"""The command that translates raw text (scripts/translate.sh).

python -m fairseq_plugins.evaluation.translate --checkpoint FILE --data DIR INPUT
"""

import argparse
import logging
import sys
import warnings
from pathlib import Path

from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import decoded, writing
from fairseq_plugins.common.option_types import new_file
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.progress import track
from fairseq_plugins.data.options import add_folder, add_number, check_file, check_folder
from fairseq_plugins.translation.decoding import Decoding

STANDARD_INPUT = "-"


def read_input(name: str) -> list[str]:
    """Read the lines of a file, or of standard input for `-`; only a line feed ends one.

    A byte-order mark is left out.

    Raises:
        DataError: a line is not UTF-8.
    """
    data = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    return [*decoded(data.removesuffix(b"\n").split(b"\n") if data else (), name)]


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe translate",
        description="Translate raw text, line by line. An empty line stays empty.",
    )
    defaults = Decoding()
    add = parser.add_argument
    add("input", metavar="INPUT", help="file with raw text, - for standard input")
    add("--checkpoint", type=Path, required=True, metavar="FILE", help="the trained model")
    add_folder(
        parser,
        "--data",
        "the training's data folder, for its codes and dictionaries",
        required=True,
    )
    add("--output", type=new_file, metavar="FILE", help="file to write (default: standard output)")
    add_number(parser, "--beam", defaults.beam, "hypotheses kept")
    text = f"above 0 favours longer output (default: {defaults.length_penalty})"
    add("--length-penalty", type=float, default=defaults.length_penalty, metavar="X", help=text)
    add_number(parser, "--max-tokens", defaults.max_tokens, "source tokens per batch")
    add("--cpu", action="store_true", help="run on the CPU, even where there is a GPU")
    return parser


def run(args: argparse.Namespace) -> None:
    """Translate; an output file is written completely or not at all."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    # fairseq asks for pinned memory with a GPU or without.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    decoding = Decoding(args.beam, args.length_penalty, max_tokens=args.max_tokens)
    if args.input != STANDARD_INPUT:
        check_file(Path(args.input), "INPUT")
    check_file(args.checkpoint, "--checkpoint")
    check_folder(args.data, "--data")
    lines = read_input(args.input)
    from fairseq_plugins.evaluation.translator import BUFFER_LINES, Translator  # takes seconds

    with checkpoint_given_by("--checkpoint"):
        translator = Translator(args.checkpoint, args.data, decoding, cpu=args.cpu)
    translated = translator.translate(lines, args.input)
    if len(lines) > BUFFER_LINES or sys.stderr.isatty():
        translated = track(translated, "translating", unit="lines", total=len(lines))
    if args.output is None:
        for line in translated:
            print(line)
        return
    with writing(args.output) as (out,):
        out.writelines(line.encode() + b"\n" for line in translated)


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
