"""`python -m fairseq_plugins.glue evaluate | predict --path CHECKPOINT --data DIR --task CoLA`."""

import argparse
import json
import sys
from pathlib import Path

from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.option_types import parse_seed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.options import check_file, check_folder
from fairseq_plugins.glue import BATCH_SIZE
from fairseq_plugins.glue.tasks import TASKS, find_task


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="python -m fairseq_plugins.glue",
        description="GLUE's metrics and predictions of a checkpoint.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    text = "print one line of JSON with the metrics"
    _add_options(commands.add_parser("evaluate", help=text, description=text), "valid")
    text = "write the predictions for a test set in the format of GLUE's server"
    predict = commands.add_parser("predict", help=text, description=text)
    _add_options(predict, "test")
    predict.add_argument("--output", type=Path, required=True, metavar="FILE", help="as CoLA.tsv")
    return parser


def _add_options(command: argparse.ArgumentParser, subset: str) -> None:
    command.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    command.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the task's folder"
    )
    command.add_argument("--task", required=True, help=", ".join(TASKS))
    command.add_argument(
        "--subset",
        default=subset,
        help="valid1 and test1 are MNLI mismatched, held_out a part of the training set "
        f"(default: {subset})",
    )
    command.add_argument("--batch-size", type=int, default=BATCH_SIZE, metavar="N")
    command.add_argument("--seed", type=parse_seed, default=1, help="seed of random encodings")
    command.add_argument(
        "--cpu", action="store_true", help="run on the CPU, even where there is a GPU"
    )


def run(args: argparse.Namespace) -> None:
    """Print the metrics of the checkpoint, or write its predictions."""
    check_file(args.path, "--path")
    check_folder(args.data, "--data")
    task = find_task(args.task)
    task.split(args.subset)  # an unknown one is an error
    from fairseq_plugins.evaluation import glue  # slow to import; --help stays fast

    options = {"batch_size": args.batch_size, "seed": args.seed, "cpu": args.cpu}
    with checkpoint_given_by("--path"):
        if args.command == "evaluate":
            print(json.dumps(glue.evaluate(args.path, args.data, task, args.subset, **options)))
            return
        found = glue.predict(args.path, args.data, task, args.subset, **options)
    values = [f"{one.value:.4f}" if task.labels.is_number else one.value for one in found]
    rows = "".join(f"{number}\t{value}\n" for number, value in enumerate(values))
    write_text(args.output, f"index\tprediction\n{rows}")


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
