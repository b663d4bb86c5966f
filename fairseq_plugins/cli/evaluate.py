"""``fairseq-pe evaluate``: perplexity of a checkpoint, with its provenance."""

import argparse
import logging
import re
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairseq_plugins.common import provenance
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.option_types import new_file, numbers, parse_seed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import PACKAGE
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import check_file, check_folder

PROGRAM = "fairseq-pe evaluate"
_HOME = PACKAGE.parent
_COUNTS = ("length", "tokens", "skipped", "predicted")
_COLUMNS = (*_COUNTS, "bits/token", "PPL", "PPL/word", "bits/byte")


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog=PROGRAM,
        description="Perplexity of a pe_transformer_lm or pe_roberta on a split of its data: per "
        "unit of the data, and per word and byte of its text where the data folder knows them. A "
        "masked model is scored on the tokens that its training would mask.",
    )
    add = parser.add_argument
    add("--path", type=Path, required=True, metavar="FILE", help="checkpoint")
    add("--data", type=Path, required=True, metavar="DIR", help="data folder")
    add("--split", default="valid", help="train, valid or test (default: valid)")
    text = "tokens of a sample with its context; one line of output each (default: as trained)"
    add("--lengths", type=numbers("--lengths", 1), default=(), metavar="N,...", help=text)
    text = "tokens before each sample that are read but not scored, as in fairseq-eval-lm: every "
    text += "token then has at least so many before it (default: 0)"
    add("--context-window", type=int, default=0, metavar="N", help=text)
    add("--batch-size", type=int, default=8, metavar="N", help="samples at once (default: 8)")
    text = "none: samples are full; complete: whole lines; eos: a line each (default: none, and "
    text += "of a masked model that of its training)"
    add("--sample-break-mode", metavar="MODE", help=text)
    add_adaptation(parser)
    add("--seed", type=parse_seed, default=1, metavar="N", help="random seed (default: 1)")
    add("--device", metavar="DEVICE", help="cpu, cuda or cuda:N (default: a GPU if there is one)")
    text = "leave out samples that are longer than a length; without it they are an error"
    add("--allow-skipped", action="store_true", help=text)
    text = "JSON file to write, with the provenance of the numbers"
    add("--output", type=new_file, metavar="FILE", help=text)
    return parser


def add_adaptation(parser: argparse.ArgumentParser) -> None:
    """Add `--encoding`, `--options` and `--grow-table`."""
    add = parser.add_argument
    text = "encoding in place of the model's own, as yarn for rope; it must have its "
    text += "weights: nothing is trained"
    add("--encoding", default="", metavar="NAME", help=text)
    text = 'options of that encoding, as "factor=4"; the factor is by default the length over '
    text += "that of the training"
    add("--options", default="", metavar="WORDS", help=text)
    text = "extend a learned table to each length, without training: copy its rows and draw the "
    text += "others, interpolate between them, or derive all by Su's decomposition"
    add("--grow-table", default="", metavar="HOW", help=text)


def _run(args: argparse.Namespace) -> None:
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    # fairseq asks for pinned memory with a GPU or without.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    # These take seconds to import.
    from fairseq_plugins.evaluation.language_model import EvaluationOptions, evaluate
    from fairseq_plugins.modules.adaptation import Adaptation

    request = EvaluationOptions(
        path=args.path,
        data=args.data,
        split=args.split,
        lengths=args.lengths,
        context_window=args.context_window,
        batch_size=args.batch_size,
        break_mode=args.sample_break_mode,
        seed=args.seed,
        device=_device(args.device),
        allow_skipped=args.allow_skipped,
        adaptation=Adaptation(args.encoding, args.options, args.grow_table),
    )
    check_file(args.path, "--path")
    check_folder(args.data, "--data")

    def begin(trained: Any, samples: Any) -> None:
        about = f"{args.path.name}: {trained.identity.model}, {trained.encoding}"
        print(f"{about}; {args.split} of {args.data}, {samples.tokens:,} tokens")
        print("  ".join(f"{name:>{max(len(name), 9)}}" for name in _COLUMNS), flush=True)

    def done(line: dict[str, Any]) -> None:
        print(format_line(line), flush=True)

    with checkpoint_given_by("--path"):
        report = evaluate(request, begin=begin, done=done)
    for note in _notes(report):
        print(note)
    if args.output is not None:
        result = {**_provenance(args, request), **report}
        file = {"file": args.path.name, "sha256": sha256(args.path)}
        result["checkpoint"] = {**file, **result["checkpoint"]}
        write_json(args.output, result)
        print(f"written: {args.output}")


def _device(word: str | None) -> str:
    if word is None:
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", word, re.ASCII):
        raise OptionError(f"--device must be cpu, cuda or cuda:N, but is {word!r}")
    return word


def format_line(line: dict[str, Any]) -> str:
    """Format a line of the table."""
    token, word, byte = (line[f"per_{unit}"] or {} for unit in ("token", "word", "byte"))
    cells = [
        *(f"{line[name]:,}" for name in _COUNTS),
        _number(token.get("bits"), 4),
        _number(token.get("perplexity"), 2),
        _number(word.get("perplexity"), 2),
        _number(byte.get("bits"), 4),
    ]
    widths = (max(len(name), 9) for name in _COLUMNS)
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _number(value: float | None, digits: int) -> str:
    return "unknown" if value is None else f"{value:,.{digits}f}"


def _notes(report: dict[str, Any]) -> list[str]:
    """Return the notes below the table."""
    notes, text = [], report["text"]
    if masks := report["masking"]:
        shares = {name: f"{masks[name]:.0%}" for name in masks if name.endswith("_prob")}
        notes.append(
            f"masked: {shares['mask_prob']} of the tokens are predicted, of these "
            f"{shares['leave_unmasked_prob']} are left as they are and "
            f"{shares['random_token_prob']} replaced by others; per word and byte there is nothing"
        )
    elif text["why_unknown"]:
        notes.append(f"per word and byte: {text['why_unknown']}")
    else:
        notes.append(
            "PPL is per token; PPL/word and bits/byte divide the same loss by the words and bytes "
            "of the text (a word of n tokens has PPL to the power of n): they compare models with "
            "other tokens"
        )
    if unknown := text["unknown_words"]:
        notes.append(f"<unk> stands for {unknown:,} of the tokens, whatever they were")
    return notes


def _provenance(args: argparse.Namespace, request: Any) -> dict[str, Any]:
    """Return the sources of the numbers."""
    return {
        "command": provenance.without_absolute_paths([*PROGRAM.split(), *args.command_line]),
        "data": provenance.describe_data(args.data),
        "split": request.split,
        "context_window": request.context_window,
        "batch_size": request.batch_size,
        "seed": request.seed,
        "device": request.device,
        "commit": provenance.commit(_HOME),
        "sources": provenance.sources(_HOME),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(gpus=int(request.device != "cpu")),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


main = command(get_parser, _run)
