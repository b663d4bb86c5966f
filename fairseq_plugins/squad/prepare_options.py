"""The commands behind scripts/prepare_squad.sh and scripts/prepare_toy_squad.sh.

python -m fairseq_plugins.squad prepare --version 1.1 --bpe DIR [--from DIR] [options]
python -m fairseq_plugins.squad toy [options]
"""

import argparse

from fairseq_plugins.common.root import data_folder
from fairseq_plugins.data import options
from fairseq_plugins.squad import generated
from fairseq_plugins.squad.features import TOY_SIZES, WindowSizes
from fairseq_plugins.squad.folder import VERSIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--version", choices=VERSIONS, required=True, help="version of SQuAD")
    options.add_tokenizer(parser, "the pre-training's tokenizer")
    options.add_source(
        parser,
        "folder with {train,dev}-vVERSION.json or vVERSION/{train,dev}-part.json, plain, .xz or "
        ".gz (default: the official files are downloaded)",
    )
    options.add_folder(parser, "--output", "folder to make (default: data/squad-vVERSION)")
    add_sizes(parser, WindowSizes())
    options.add_force(parser)


def add_toy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command for generated questions."""
    text = "version of SQuAD's format (default: 1.1)"
    parser.add_argument("--version", choices=VERSIONS, default="1.1", help=text)
    options.add_tokenizer(parser, "the pre-training's tokenizer", "toy-mlm/bpe")
    options.add_folder(parser, "--output", "folder to make (default: data/toy-squad-vVERSION)")
    options.add_seed(parser, "questions")
    text = f"texts with {generated.QUESTIONS_PER_TEXT} questions each"
    options.add_counts(parser, "texts", generated.TEXTS, text)
    add_sizes(parser, TOY_SIZES)
    options.add_force(parser)


def add_sizes(parser: argparse.ArgumentParser, default: WindowSizes) -> None:
    """Add the options of the windows."""
    text = "tokens of a window, with the question and the special tokens"
    options.add_number(parser, "--max-length", default.max_length, text)
    text = "tokens from the beginning of one window to that of the next"
    options.add_number(parser, "--stride", default.stride, text)
    text = "tokens of a question; the rest is cut off"
    options.add_number(parser, "--max-query-length", default.max_query_length, text)


def sizes_from(args: argparse.Namespace) -> WindowSizes:
    """Return the sizes from options of `add_sizes`."""
    return WindowSizes(args.max_length, args.stride, args.max_query_length)


def run(args: argparse.Namespace) -> None:
    """Prepare the official files."""
    from fairseq_plugins.squad.prepare import prepare  # slow to import; --help stays fast

    output = args.output or data_folder(f"squad-v{args.version}")
    options.call(prepare, args, output=output, sizes=sizes_from(args))


def run_toy(args: argparse.Namespace) -> None:
    """Prepare generated questions."""
    texts = options.counts_from(args, "texts", generated.TEXTS)
    options.check_counts("texts", texts)
    from fairseq_plugins.squad.prepare import prepare_toy

    output = args.output or data_folder(f"toy-squad-v{args.version}")
    options.call(prepare_toy, args, output=output, texts=texts, sizes=sizes_from(args))
