"""``fairseq-pe <command>``, and ``python -m fairseq_plugins <command>``, which is the same."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fairseq_plugins.common.exit_status import skip_last_collection
from fairseq_plugins.common.extras import DISTRIBUTION, extra_of, install_command
from fairseq_plugins.common.parser import INVALID_INPUT, Parser, error_line
from fairseq_plugins.common.root import add_folder_options, apply_folder_options

PROGRAM = "fairseq-pe"
# name: (module with main(argv) -> exit status, imported only when asked for; line for --help)
COMMANDS = {
    "encodings": ("fairseq_plugins.catalog", "the position encodings, and the options of one"),
    "doctor": ("fairseq_plugins.cli.doctor", "what is installed, and whether training can run"),
    "prepare": ("fairseq_plugins.cli.prepare", "data folders, and a published model to start from"),
    "table": ("fairseq_plugins.cli.train_table", "train, evaluate and show a paper's table"),
    "compare": ("fairseq_plugins.cli.compare", "encodings on your own text, in some minutes"),
    "finetune": ("fairseq_plugins.cli.finetune", "a published model on your own labelled data"),
    "evaluate": ("fairseq_plugins.cli.evaluate", "the perplexity of a checkpoint, at any length"),
    "status": ("fairseq_plugins.cli.status", "which runs are done, running, waiting or failed"),
    "analyse": ("fairseq_plugins.cli.analyse", "what an encoding or a trained model does"),
    "translate": ("fairseq_plugins.evaluation.translate", "raw text with a trained model"),
    "average": ("fairseq_plugins.evaluation.average", "a training's last checkpoints into one"),
    "convert": ("fairseq_plugins.cli.convert", "BERT, RoBERTa from and to Hugging Face's format"),
    "completion": ("fairseq_plugins.cli.completion", "make the shell complete these words"),
    "results": ("fairseq_plugins.cli.results", "results as data, or a table's cells for a paper"),
    "report": ("fairseq_plugins.cli.report", "the site of all results, to open in a browser"),
    "rehearse": ("fairseq_plugins.cli.rehearse", "what the papers' scale needs, without GPUs"),
    "pack": ("fairseq_plugins.cli.pack", "trained models to download, each with a model card"),
    "path": ("fairseq_plugins.cli.path", "fairseq's --user-dir, and Hydra's --config-dir"),
}
ALIASES = {"analysis": "analyse"}
# Shown by `fairseq-pe` without arguments: what people do, each with its command.
FIRST_STEPS = (
    ("List the position encodings; add a name for its definition and options", "encodings"),
    ("Compare two encodings on your own text", "compare rope alibi --text novel.txt --minutes 10"),
    ("Draw what encodings do", "analyse picture lrpe_type2 rope alibi"),
    ("Train and evaluate rows of a paper's table", "table table2 --scale toy --rows base,rope"),
    ("Measure a trained model's perplexity", "evaluate --path CHECKPOINT --data DATA"),
)


class _Version(argparse.Action):
    """The option ``--version``; the version is looked up only when it is given."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        from fairseq_plugins.common.provenance import release

        print(f"{PROGRAM} {release()}")
        parser.exit()


def get_parser() -> argparse.ArgumentParser:
    """Return the parser that chooses a command; each command has a parser of its own."""
    parser = Parser(
        prog=PROGRAM,
        description="Train and compare position encodings with softmax or linear attention.",
        epilog=f"`{PROGRAM} <command> --help` shows a command's options. Training itself goes "
        f'through fairseq: fairseq-train DATA --user-dir "$({PROGRAM} path)" '
        "--task language_modeling --arch pe_transformer_lm ...",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    add_folder_options(parser)
    commands = parser.add_subparsers(dest="command", metavar="<command>", required=True)
    for name, (_, summary) in COMMANDS.items():
        also = [alias for alias, command in ALIASES.items() if command == name]
        commands.add_parser(name, help=summary, add_help=False, aliases=also)
    return parser


def first_steps() -> str:
    """Return what `fairseq-pe` prints without arguments: common tasks and their commands."""
    steps = "\n\n".join(f"{task}:\n  {PROGRAM} {command}" for task, command in FIRST_STEPS)
    return f"{steps}\n\n`{PROGRAM} --help` lists all commands."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` begins with and return its exit status.

    ``argv`` defaults to the process's arguments. Without any, the first steps are printed.
    """
    if argv is None:
        skip_last_collection()
    if not (sys.argv[1:] if argv is None else argv):
        print(first_steps())
        return 0
    args, rest = get_parser().parse_known_args(argv)
    apply_folder_options(args)
    name = ALIASES.get(args.command, args.command)
    try:
        status = int(import_module(COMMANDS[name][0]).main(rest))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"\n{PROGRAM} {name}: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader (`head`) has closed the pipe; Python's own flush at exit would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE  # as of other programs, which that signal ends
    except OSError as error:  # of printing to a full disk, for example
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = error.filename or "standard output"
        print(f"{PROGRAM} {name}: error: {where}: {error.strerror or error}", file=sys.stderr)
        return 1
    except ValueError as error:  # of importing a file of one's own encodings
        print(error_line(f"{PROGRAM} {name}", str(error)), file=sys.stderr)
        return INVALID_INPUT
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        lacking = (error.name or "").partition(".")[0]
        print(
            f"{PROGRAM} {name}: error: {lacking} is not installed; "
            f"{install_command(extra)} brings it "
            f"(`{PROGRAM} doctor` says what else {DISTRIBUTION} can have)",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
