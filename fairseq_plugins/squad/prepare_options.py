"""The commands behind scripts/prepare_squad.sh and scripts/prepare_toy_squad.sh.

python -m fairseq_plugins.squad prepare --version 1.1 --bpe DIR [--from DIR] [options]
python -m fairseq_plugins.squad toy [options]
"""

import argparse
from pathlib import Path

from fairseq_plugins.squad import generated as questions
from fairseq_plugins.squad.examples import VERSIONS
from fairseq_plugins.squad.features import WindowSizes
from fairseq_plugins.squad.prepare import TOY_SIZES, prepare, prepare_toy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--version", choices=VERSIONS, required=True, help="of SQuAD")
    parser.add_argument(
        "--bpe",
        type=Path,
        required=True,
        metavar="DIR",
        help="pieces the model is pre-trained with: encoder.json, vocab.bpe and dict.txt",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder with {train,dev}-vVERSION.json or vVERSION/{train,dev}-part.json, plain, "
        ".xz or .gz (default: the official files are downloaded)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to make (default: data/squad-vVERSION)",
    )
    _add_data_root(parser)
    add_sizes(parser, WindowSizes())


def add_sizes(parser: argparse.ArgumentParser, default: WindowSizes) -> None:
    """Options of the windows."""
    for name, text in (
        ("max_length", "tokens of a window, with the question and four special ones"),
        ("stride", "tokens from the beginning of one window to that of the next"),
        ("max_query_length", "tokens of a question; the rest is cut off"),
    ):
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=int,
            default=getattr(default, name),
            metavar="N",
            help=f"{text} (default: {getattr(default, name)})",
        )


def sizes_from(args: argparse.Namespace) -> WindowSizes:
    """What `add_sizes` added."""
    return WindowSizes(args.max_length, args.stride, args.max_query_length)


def add_toy_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command for the generated questions."""
    parser.add_argument(
        "--version", choices=VERSIONS, default="1.1", help="of SQuAD's format (default: 1.1)"
    )
    parser.add_argument(
        "--bpe",
        type=Path,
        metavar="DIR",
        help="pieces the model is pre-trained with (default: data/toy-mlm/bpe)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to make (default: data/toy-squad-vVERSION)",
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed, other questions")
    for split, count in questions.TEXTS.items():
        parser.add_argument(
            f"--{split}-texts",
            type=int,
            default=count,
            metavar="N",
            help=f"texts with {questions.QUESTIONS_PER_TEXT} questions each (default: {count})",
        )
    _add_data_root(parser)
    add_sizes(parser, TOY_SIZES)


def run_toy(args: argparse.Namespace) -> None:
    """The command for the generated questions."""
    prepare_toy(
        args.output or args.data_root / f"toy-squad-v{args.version}",
        version=args.version,
        bpe=args.bpe or args.data_root / "toy-mlm" / "bpe",
        seed=args.seed,
        texts={split: getattr(args, f"{split}_texts") for split in questions.TEXTS},
        sizes=sizes_from(args),
    )


def _add_data_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-root", type=Path, default=Path("data"), help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """The command."""
    prepare(
        args.output or args.data_root / f"squad-v{args.version}",
        version=args.version,
        bpe=args.bpe,
        source=args.source,
        sizes=sizes_from(args),
    )
