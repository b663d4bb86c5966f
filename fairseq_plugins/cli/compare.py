"""``fairseq-pe compare A B ... --text FILE --minutes N``: paired comparison of encodings."""

import argparse
from pathlib import Path

from fairseq_plugins.cli import finetune
from fairseq_plugins.cli.table_options import study_name
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import add_folder_options
from fairseq_plugins.data.options import check_at_least, check_file

_MOST_SEEDS = 1000  # each is planned before the first run
_MINUTES, _MERGES = 10.0, 500  # by default


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe compare",
        description="Train small language models with two or more position encodings on a text, "
        "from the same seeds, within some minutes on a CPU, and print the difference of every "
        "two with its interval and p-value. Where time runs short, it takes fewer "
        "updates, a smaller model or fewer seeds, and says so.",
        epilog="The runs are a study of Table 2: results/table2/<name>.md has every number, "
        "<name>-pairs.md the differences, and `fairseq-pe table table2 --name <name>` adds rows "
        "and seeds.",
    )
    add = parser.add_argument
    text = "two or more encodings, or names of files in configs/model"
    add("encodings", nargs="+", metavar="A B", help=text)
    data = parser.add_mutually_exclusive_group(required=True)
    text = "text to train and test on: UTF-8, plain, .xz or .gz"
    data.add_argument("--text", type=Path, metavar="FILE", help=text)
    text = "labelled examples in place of a text: `fairseq-pe finetune` fine-tunes a published "
    text += "model on them from each seed, without a time limit"
    data.add_argument("--labelled", type=Path, metavar="TSV", help=text)
    text = "published model for --labelled (default: checkpoints/start)"
    add("--start", type=Path, metavar="START", help=text)
    text = f"time limit of a comparison on --text (default: {_MINUTES:g})"
    add("--minutes", type=float, metavar="N", help=text)
    text = "attention of all models (default: vanilla, which is softmax)"
    add("--attention", choices=finetune.ATTENTIONS, default="vanilla", help=text)
    text = "seeds of every encoding; more if time is left, fewer if it is short (default: 5)"
    add("--seeds", type=int, default=5, metavar="N", help=text)
    text = f"BPE merges to learn from --text (default: {_MERGES})"
    add("--merges", type=int, metavar="N", help=text)
    text = "name of the results' folder, with --text (default: A-B-attention-FILE)"
    add("--name", type=study_name, metavar="WORD", help=text)
    add("--force", action="store_true", help="repeat a comparison that is done")
    add_folder_options(parser)
    return parser


def _fine_tune(args: argparse.Namespace) -> None:
    """Compare on labelled examples."""
    check_file(args.labelled, "--labelled")
    for option in ("minutes", "merges", "name"):
        if getattr(args, option) is not None:
            raise OptionError(f"--{option} must be left out with --labelled: it belongs to --text")
    words = [str(args.labelled), "--encoding", ",".join(args.encodings)]
    words += ["--attention", args.attention]
    words += ["--seeds", ",".join(map(str, range(1, args.seeds + 1)))]
    words += ["--start", str(args.start)] if args.start else []
    words += ["--force"] if args.force else []
    finetune.run(finetune.get_parser().parse_args(words))


def _run(args: argparse.Namespace) -> None:
    check_at_least(1 if args.labelled is not None else 2, most=_MOST_SEEDS, seeds=args.seeds)
    given = " ".join(args.encodings)
    if len(args.encodings) < 2 or len({*args.encodings}) < len(args.encodings):
        raise OptionError(f"A, B, ... must be two or more different encodings, but are {given}")
    if args.labelled is not None:
        return _fine_tune(args)
    args.minutes = _MINUTES if args.minutes is None else args.minutes
    args.merges = _MERGES if args.merges is None else args.merges
    if not 0.5 <= args.minutes <= 24 * 60:
        raise OptionError(f"--minutes must be from 0.5 to 1440, but is {args.minutes:g}")
    if args.start is not None:
        raise OptionError("--start must be left out with --text, whose models train from scratch")
    check_file(args.text, "--text")
    check_at_least(1, merges=args.merges)
    from fairseq_plugins.runner.text_comparison import compare  # takes seconds

    compare(args)


main = command(
    get_parser,
    _run,
    quiet=True,
    if_stopped="Stopped. The same command shows the pairs that were finished, or starts anew.",
)
