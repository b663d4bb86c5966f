"""``python -m fairseq_plugins.squad prepare | toy | predict | evaluate``."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.common.errors import DataError, OptionError, checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.options import add_folder, add_number, check_file, program
from fairseq_plugins.squad.folder import VERSIONS, read_description
from fairseq_plugins.squad.metrics import evaluate
from fairseq_plugins.squad.predictions import SearchOptions
from fairseq_plugins.squad.prepare_options import add_arguments, add_toy_arguments, run, run_toy

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command's --help must not
    from fairseq_plugins.squad.examples import Question


def _add_predict(parser: argparse.ArgumentParser) -> None:
    default = SearchOptions()

    def add_file(option: str, text: str, **more: Any) -> None:
        parser.add_argument(option, type=Path, metavar="FILE", help=text, **more)

    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    add_folder(parser, "--data", "prepared folder", required=True)
    parser.add_argument("--subset", default="valid", help="train or valid (default)")
    add_file("--output", "predictions to write", required=True)
    text = "v2.0: also write the probability that a question has no answer"
    add_file("--no-answer-output", text)
    add_file("--n-best-output", "also write the best spans with scores")
    add_number(parser, "--n-best", default.n_best, "spans kept")
    add_number(parser, "--max-answer-length", default.max_answer_length, "tokens of an answer")
    add_number(
        parser,
        "--null-threshold",
        default.null_threshold,
        "v2.0: give no answer where its score exceeds the best span's by more than this; inf "
        "always gives a span",
    )
    parser.add_argument("--batch-size", type=int, default=16, metavar="N")
    parser.add_argument(
        "--cpu", action="store_true", help="run on the CPU, even where there is a GPU"
    )


def _predict(args: argparse.Namespace) -> None:
    options = SearchOptions(args.n_best, args.max_answer_length, args.null_threshold)
    version = read_description(args.data)["request"]["version"]
    given = {
        "--no-answer-output": args.no_answer_output is not None,
        "--null-threshold": args.null_threshold != SearchOptions().null_threshold,
    }
    for option in given if version != "2.0" else ():
        if given[option]:
            raise OptionError(f"{option} needs data of v2.0, but it is of v1.1")
    check_file(args.path, "--path")
    from fairseq_plugins.evaluation.squad import predict  # slow to import; --help stays fast

    with checkpoint_given_by("--path"):
        found = predict(
            args.path, args.data, args.subset, options, batch_size=args.batch_size, cpu=args.cpu
        )
    write = partial(write_json, indent=None, ensure_ascii=False)
    # v1.1 always has an answer.
    threshold = options.null_threshold if version == "2.0" else math.inf
    write(args.output, {name: one.text(threshold) for name, one in found.items()})
    if args.no_answer_output:
        write(args.no_answer_output, {k: one.no_answer_probability() for k, one in found.items()})
    if args.n_best_output:
        write(args.n_best_output, {name: one.n_best() for name, one in found.items()})


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", type=Path, help="official file, plain, .xz or .gz")
    parser.add_argument("predictions", type=Path, help="{id: text}")
    parser.add_argument(
        "--version", choices=VERSIONS, help="version of the file (default: as the file states)"
    )
    text = "v2.0: {id: probability of no answer}; adds the best scores over all thresholds"
    parser.add_argument("--no-answer", type=Path, metavar="FILE", help=text)


def _evaluate(args: argparse.Namespace) -> None:
    from fairseq_plugins.squad.examples import parse_json, read_bytes, read_squad

    squad = read_squad(args.dataset, args.version)
    predictions = parse_json(read_bytes(args.predictions), args.predictions, dict[str, str])
    probabilities = None
    if args.no_answer is not None:
        if squad.version != "2.0":
            raise OptionError("--no-answer needs a file of v2.0, but it is of v1.1")
        probabilities = _read_probabilities(args.no_answer, squad.questions)
    result = evaluate(squad.questions, predictions, squad.version, probabilities)
    print(json.dumps(result, indent=2))


def _read_probabilities(path: Path, questions: Sequence["Question"]) -> dict[str, float]:
    from fairseq_plugins.squad.examples import parse_json, read_bytes

    table: dict[str, float] = parse_json(read_bytes(path), path, dict[str, float])
    for question in questions:
        if math.isnan(table.get(question.id, math.nan)):
            raise DataError(f"{path}: must have a number for every question, not for {question.id}")
    return table


_COMMANDS: dict[str, tuple[Callable[..., None], Callable[..., None], str]] = {
    "prepare": (add_arguments, run, "make a data folder from the official files"),
    "toy": (add_toy_arguments, run_toy, "make a data folder of generated questions"),
    "predict": (_add_predict, _predict, "write a checkpoint's answers"),
    "evaluate": (_add_evaluate, _evaluate, "exact match and F1 of answers, as JSON"),
}
_SCRIPTS = {"prepare": "prepare_squad", "toy": "prepare_toy_squad"}


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(prog="python -m fairseq_plugins.squad", description="SQuAD.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (add, _, summary) in _COMMANDS.items():
        # The script's name, as users call it; None for this program's.
        prog = program(_SCRIPTS[name]) if name in _SCRIPTS else None
        add(commands.add_parser(name, prog=prog, help=summary, description=summary))
    return parser


main = command(get_parser, lambda args: _COMMANDS[args.command][1](args))

if __name__ == "__main__":
    sys.exit(main())
