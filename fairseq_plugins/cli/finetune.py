"""``fairseq-pe finetune DATA --encoding rope``: fine-tuning of a published model."""

import argparse
from pathlib import Path

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import new_folder, seeds, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import add_folder_options
from fairseq_plugins.data.options import add_number, check_at_least, check_file

ATTENTIONS = ("vanilla", "linear")


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe finetune",
        description="Fine-tune a published model on labelled examples, with any position encoding, "
        "and predict the labels of others. A model with another encoding or attention than the "
        "start first copies the start's hidden states on plain text, since an exchanged encoding "
        "has to be learned. Several encodings and seeds are compared in all pairs.",
        epilog="DATA is tab-separated with a header: `label` and `sentence`, or `label`, "
        "`sentence1` and `sentence2`. `fairseq-pe prepare start` makes START.",
    )
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="labelled examples (.tsv, plain, .xz or .gz)")
    text = "folder or checkpoint of `fairseq-pe prepare start` (default: checkpoints/start)"
    add("--start", type=Path, metavar="START", help=text)
    text = "encodings, separated by commas (default: base, the unchanged start)"
    add("--encoding", type=words("--encoding"), default="base", metavar="NAMES", help=text)
    text = "attention of all models (default: vanilla, which is softmax)"
    add("--attention", choices=ATTENTIONS, default="vanilla", help=text)
    text = "seeds of adaptation and fine-tuning (default: 1)"
    add("--seeds", type=seeds, default="1", metavar="N,N", help=text)
    text = "labelled examples to measure on (default: a tenth of DATA, drawn by a fixed seed)"
    add("--valid", type=Path, metavar="FILE", help=text)
    text = "unlabelled examples to predict with the first encoding and seed"
    add("--predict", type=Path, metavar="FILE", help=text)
    text = "kind of the labels (default: numbers where all are and one has a point, else classes)"
    add("--labels", choices=("classes", "number"), help=text)
    text = "additional plain text to adapt on, one sentence per line"
    add("--text", type=Path, metavar="FILE", help=text)
    add_number(parser, "--epochs", 3, "epochs of fine-tuning")
    add_number(parser, "--batch-size", 32, "examples per update")
    add_number(parser, "--lr", 5e-5, "learning rate of fine-tuning")
    add_number(parser, "--max-length", 128, "tokens per example; longer ones are cut")
    text = (
        "updates of adaptation, of 1,024 tokens each; more bring the model nearer to the start "
        "(default: 25 passes over the text, but 100 to 300 updates)"
    )
    add("--adapt-updates", type=int, metavar="N", help=text)
    text = "folder of models, scores and predictions (default: checkpoints/finetune/DATA)"
    add("--output", type=new_folder, metavar="DIR", help=text)
    add("--force", action="store_true", help="repeat runs that are done")
    add_folder_options(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Check the options, then fine-tune."""
    for option in ("data", "valid", "predict", "text"):
        path = getattr(args, option)
        if path is not None:
            check_file(path, "DATA" if option == "data" else f"--{option}")
    for option in ("epochs", "batch_size", "max_length", "adapt_updates"):
        if (value := getattr(args, option)) is not None:
            check_at_least(1, **{option: value})
    if not 0 < args.lr < 1:
        raise OptionError(f"--lr must be between 0 and 1, but is {args.lr:g}")
    from fairseq_plugins.runner.finetune_command import fine_tune  # takes seconds

    fine_tune(args)


main = command(get_parser, run, quiet=True, if_stopped="Stopped. The same command goes on.")
