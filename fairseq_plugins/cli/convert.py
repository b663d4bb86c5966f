"""Conversion of a Hugging Face BERT or RoBERTa to a checkpoint of pe_roberta, and back.

    fairseq-pe convert to-fairseq bert-base-uncased checkpoints/bert-base
    fairseq-pe convert to-fairseq roberta-base checkpoints/roberta-base
    fairseq-pe convert to-huggingface checkpoints/x/checkpoint_best.pt exported --tokenizer DIR
    fairseq-pe convert to-huggingface checkpoints/x/checkpoint_best.pt exported --bpe DIR

The first two make a folder with model.pt, dict.txt and the tokenizer: tokenizer.json of a BERT,
encoder.json and vocab.bpe of a RoBERTa. The others make one with config.json, model.safetensors
and the tokenizer: of a BERT with --tokenizer, else of a RoBERTa.
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import data_folder
from fairseq_plugins.data.folders import replace_folder, staging_folder
from fairseq_plugins.data.options import add_folder, check_file, check_folder

SOURCES = {"to-fairseq": "Hugging Face folder", "to-huggingface": "checkpoint of pe_roberta"}


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    made_by = typed_command("scripts/prepare_gpt2_bpe.sh")
    for name, what in SOURCES.items():
        own = commands.add_parser(name)
        own.add_argument("source", type=Path, metavar="SOURCE", help=what)
        text = "folder to write; it must not exist"
        own.add_argument("output", type=Path, metavar="OUTPUT", help=text)
        add_folder(
            own, "--bpe", f"GPT-2's BPE of a RoBERTa (default: data/gpt2_bpe, made by {made_by})"
        )
    text = "folder with the WordPiece tokenizer of its data: write a BERT"
    add_folder(commands.choices["to-huggingface"], "--tokenizer", text)
    return parser


def run(args: argparse.Namespace) -> None:
    """Convert; the output folder appears complete or not at all."""
    logging.basicConfig(level=logging.INFO, format="convert: %(message)s", force=True)
    if args.output.exists():
        raise OptionError(f"OUTPUT must be a new folder, but {args.output} exists; move it away")
    (_to_fairseq if args.command == "to-fairseq" else _to_huggingface)(args)


def _to_fairseq(args: argparse.Namespace) -> None:
    check_folder(args.source, "SOURCE")
    if args.bpe is not None:
        check_folder(args.bpe, "--bpe")
    from fairseq_plugins.integrations.published import to_fairseq  # takes seconds

    must = "be a usable folder of Hugging Face"
    with checkpoint_given_by("SOURCE", must), _new_folder(args.output) as built:
        to_fairseq(args.source, built, args.bpe or data_folder("gpt2_bpe"))


def _to_huggingface(args: argparse.Namespace) -> None:
    check_file(args.source, "SOURCE")
    if args.tokenizer and args.bpe:
        raise OptionError(
            "--tokenizer (of a BERT) and --bpe (of a RoBERTa) must not be given together"
        )
    pieces = args.tokenizer or args.bpe or data_folder("gpt2_bpe")
    check_folder(pieces, "--tokenizer" if args.tokenizer else "--bpe")
    from fairseq_plugins.integrations import bert, roberta  # takes seconds

    convert = bert.to_huggingface if args.tokenizer else roberta.to_huggingface
    with checkpoint_given_by("SOURCE"), _new_folder(args.output) as built:
        convert(args.source, built, pieces)


@contextmanager
def _new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder to write into, which takes its place when the block ends."""
    with staging_folder(output) as work:
        built = work / "converted"
        built.mkdir()
        yield built
        replace_folder(built, output)


main = command(get_parser, run)
