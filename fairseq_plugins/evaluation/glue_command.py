"""`python -m fairseq_plugins.glue evaluate --path CHECKPOINT --data DIR/<TASK> --task CoLA`."""

import argparse
import json
import sys
from pathlib import Path

from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import parse_seed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.options import check_file, check_folder
from fairseq_plugins.glue import BATCH_SIZE
from fairseq_plugins.glue.tasks import TASKS, find_task


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="python -m fairseq_plugins.glue", description="GLUE's metrics of a checkpoint."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("evaluate", help="print one line of JSON with the metrics")
    command.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    command.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the task's folder"
    )
    command.add_argument("--task", required=True, help=", ".join(TASKS))
    text = "valid1 is MNLI mismatched, held_out a part of the training set"
    command.add_argument("--subset", default="valid", help=text)
    command.add_argument("--batch-size", type=int, default=BATCH_SIZE, metavar="N")
    command.add_argument("--seed", type=parse_seed, default=1, help="seed of random encodings")
    command.add_argument(
        "--cpu", action="store_true", help="run on the CPU, even where there is a GPU"
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Evaluate the checkpoint and print its metrics."""
    check_file(args.path, "--path")
    check_folder(args.data, "--data")
    from fairseq_plugins.evaluation.glue import evaluate  # slow to import; --help stays fast

    options = {"batch_size": args.batch_size, "seed": args.seed, "cpu": args.cpu}
    with checkpoint_given_by("--path"):
        result = evaluate(args.path, args.data, find_task(args.task), args.subset, **options)
    print(json.dumps(result))


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
