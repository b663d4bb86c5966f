"""RoBERTa from a Hugging Face folder into a checkpoint of pe_roberta, and back.

    fairseq-pe convert to-fairseq roberta-base checkpoints/roberta-base
    fairseq-pe convert to-huggingface checkpoints/x/checkpoint_best.pt exported --bpe DIR

The first makes a folder with model.pt, dict.txt, encoder.json and vocab.bpe, the second one with
config.json, model.safetensors, vocab.json and merges.txt.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import data_folder
from fairseq_plugins.data.folders import building, replace_folder
from fairseq_plugins.data.options import check_file, check_folder

SOURCES = {"to-fairseq": "Hugging Face folder", "to-huggingface": "checkpoint of pe_roberta"}


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog="fairseq-pe convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    made_by = as_typed("scripts/prepare_gpt2_bpe.sh")
    for name, what in SOURCES.items():
        command = commands.add_parser(name)
        command.add_argument("source", type=Path, metavar="SOURCE", help=what)
        text = "folder to make; it must not exist"
        command.add_argument("output", type=Path, metavar="OUTPUT", help=text)
        command.add_argument(
            "--bpe",
            type=Path,
            default=data_folder("gpt2_bpe"),
            metavar="DIR",
            help=f"the model's pieces (default: data/gpt2_bpe, made by {made_by})",
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert; the exit status."""
    args = get_parser().parse_args(arguments)
    return exit_status(args.program, lambda: run(args))


def run(args: argparse.Namespace) -> None:
    """Convert; the output folder appears complete or not at all."""
    logging.basicConfig(level=logging.INFO, format="convert: %(message)s", force=True)
    from fairseq_plugins.integrations import roberta  # takes seconds, which --help must not

    convert = {"to-fairseq": roberta.to_fairseq, "to-huggingface": roberta.to_huggingface}
    (check_folder if args.command == "to-fairseq" else check_file)(args.source, "SOURCE")
    check_folder(args.bpe, "--bpe")
    if args.output.exists():
        raise OptionError(f"OUTPUT must be a new folder, but {args.output} exists; move it away")
    with building(args.output) as work:
        built = work / "converted"
        built.mkdir()
        convert[args.command](args.source, built, args.bpe)
        replace_folder(built, args.output)
