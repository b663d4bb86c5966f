"""``fairseq-pe finetune DATA --encoding rope``: a published model on labelled examples."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import seeds, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    ROOT,
    add_folder_options,
    configs_folder,
    data_folder,
    from_root,
    root_folder,
)
from fairseq_plugins.data.options import add_number, check_at_least

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.glue.tasks import GlueTask
    from fairseq_plugins.records.results import Result
    from fairseq_plugins.runner.finetuning import Data, FineTuning

ATTENTIONS = ("vanilla", "linear")
_WORKERS = 2


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
    text = "names separated by commas (default: base, the start as it is)"
    add("--encoding", type=words("--encoding"), default="base", metavar="NAMES", help=text)
    add("--attention", choices=ATTENTIONS, default="vanilla", help="(default: vanilla)")
    text = "of adaptation and fine-tuning (default: 1)"
    add("--seeds", type=seeds, default="1", metavar="N,N", help=text)
    text = "labelled examples to measure on (default: a tenth of DATA, drawn by a fixed seed)"
    add("--valid", type=Path, metavar="FILE", help=text)
    text = "the same columns without `label`: predictions of the first encoding and seed"
    add("--predict", type=Path, metavar="FILE", help=text)
    text = "kind of the labels (default: numbers where all are and one has a point, else classes)"
    add("--labels", choices=("classes", "number"), help=text)
    add("--text", type=Path, metavar="FILE", help="more plain text to adapt on, a line a sentence")
    add_number(parser, "--epochs", 3, "of the fine-tuning")
    add_number(parser, "--batch-size", 32, "examples of an update")
    add_number(parser, "--lr", 5e-5, "learning rate of the fine-tuning")
    add_number(parser, "--max-length", 128, "tokens of an example; longer ones are cut")
    text = "updates of the adaptation, of 1,024 tokens; more bring it nearer to the start"
    add_number(parser, "--adapt-updates", 300, text)
    text = "folder of models, scores and predictions (default: checkpoints/finetune/DATA)"
    add("--output", type=Path, metavar="DIR", help=text)
    add("--force", action="store_true", help="train again what is there")
    add_folder_options(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Fine-tune a model with each encoding from each seed, and compare them."""
    _check(args)
    from fairseq_plugins.glue.own import read_task

    task = read_task(args.data, args.valid, args.predict, args.labels)
    kind = "numbers" if task.labels.is_number else f"{len(task.labels.classes)} classes"
    print(f"{args.data.name}: {task.inputs} sentence(s) an example, {kind}", flush=True)
    from fairseq_plugins.records.recipe import REFUSED, in_a_line
    from fairseq_plugins.runner.finetuning import threads
    from fairseq_plugins.runner.launcher import get_launchers

    runs = _plan(args, task)
    try:
        for one in runs:
            _check_encoding(one)
    except REFUSED as error:
        raise OptionError(f"--encoding {one.settings.encoding}: {in_a_line(error)}") from None
    results = []
    with get_launchers(ROOT, 0, [threads()]) as (launcher,):
        for one in runs:
            if args.force:
                one.remove()
            metrics = one.run(launcher, partial(print, flush=True))
            numbers = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
            print(f"{one.name}: {numbers}", flush=True)
            results.append(
                {
                    "row": one.settings.encoding,
                    "attention": args.attention,
                    "seed": one.seed,
                    "metrics": metrics,
                }
            )
    if len(args.encoding) > 1:
        print(f"\n{_comparison(args, task, results)}\n")
    if args.predict:
        _write_predictions(args, runs[0])


def _check(args: argparse.Namespace) -> None:
    """Check options and files before any work."""
    for option in ("data", "valid", "predict", "text"):
        path = getattr(args, option)
        if path is not None and not path.is_file():
            name = "DATA" if option == "data" else f"--{option}"
            raise OptionError(f"{name} must be a file, but is {path}")
    check_at_least(
        1,
        epochs=args.epochs,
        batch_size=args.batch_size,
        max_length=args.max_length,
        adapt_updates=args.adapt_updates,
    )
    if not 0 < args.lr < 1:
        raise OptionError(f"--lr must be between 0 and 1, but is {args.lr:g}")
    start = args.start or ROOT / root_folder("checkpoints") / "start"
    args.start = start / "model.pt" if start.is_dir() else start
    if not args.start.is_file():
        raise OptionError(
            f"--start must be a folder or checkpoint of `fairseq-pe prepare start`, but {start} is "
            "not there"
        )
    from fairseq_plugins.experiments.rows import check_row, runnable_rows

    for name in args.encoding:
        check_row(runnable_rows(configs_folder(ROOT)), name, "--encoding must be")


def _plan(args: argparse.Namespace, task: "GlueTask") -> "list[FineTuning]":
    """Prepare the data, and plan all fine-tunings, seed by seed."""
    from fairseq_plugins.experiments.training import PretrainedModel
    from fairseq_plugins.runner.finetuning import FineTuning, Settings

    folder = ROOT / root_folder("checkpoints") / "finetune" / _stem(args.data)
    output = args.output.absolute() if args.output else folder
    start = PretrainedModel.read_sizes(ROOT, args.start)
    settings = [
        Settings(
            name,
            args.attention,
            args.epochs,
            args.batch_size,
            args.lr,
            args.max_length,
            args.adapt_updates,
        )
        for name in args.encoding
    ]
    data = _prepare(args, task, adapts=any(one.changes_start for one in settings))
    return [
        FineTuning(
            ROOT,
            from_root(output / f"{one.encoding}-{one.attention}-s{seed}"),
            data,
            start,
            one,
            seed,
        )
        for seed in args.seeds
        for one in settings
    ]


def _stem(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", path.name.partition(".")[0])[:20]


def _prepare(args: argparse.Namespace, task: "GlueTask", *, adapts: bool) -> "Data":
    """Make the data folder of the examples and, if a model is adapted, that of plain text."""
    from fairseq_plugins.data.measure import sha256
    from fairseq_plugins.data.tokenizers import load_tokenizer
    from fairseq_plugins.glue import own, prepare
    from fairseq_plugins.glue.read import read_split
    from fairseq_plugins.runner.finetuning import Data

    given = {"train": args.data, "valid": args.valid, "test": args.predict}
    paths = {name: path for name, path in given.items() if path is not None}
    sums = {name: sha256(path) for name, path in paths.items()}
    pieces = load_tokenizer(args.start.parent)
    sums["tokenizer"] = pieces.fingerprint()
    name = f"finetune-{_stem(args.data)}-{'-'.join(one[:6] for one in sums.values())}"
    total = len(read_split(args.data, task, task.split("train")).examples)
    held_out = None if args.valid else own.held_out_size(total)
    task = replace(task, name="examples")
    options = prepare.Options(args.start.parent, held_out=held_out, workers=_WORKERS)
    found = prepare.TaskFiles(task, args.data.parent, paths, ())
    folder = data_folder(name)
    prepare.prepare_files([found], folder, options, pieces)
    text = None
    if adapts:
        text = from_root(_prepare_text(args, task, folder.with_name(f"{name}-text")))
    sums.pop("test", None)  # predictions change no model
    if args.text:
        sums["text"] = sha256(args.text)
    return Data(task, from_root(folder / task.name), total - (held_out or 0), text, sums)


def _prepare_text(args: argparse.Namespace, task: "GlueTask", output: Path) -> Path:
    """Make a folder of the sentences as plain text to adapt on."""
    from fairseq_plugins.common.files import write_bytes
    from fairseq_plugins.data.one_text import split_lines
    from fairseq_plugins.data.plain_text import read_lines
    from fairseq_plugins.data.prepare_mlm import prepare_text
    from fairseq_plugins.glue.own import text_lines

    lines = text_lines([args.data], task.splits[0].sentences)
    lines += [*read_lines(args.text)] if args.text else []
    raw = output.with_name(f"{output.name}-raw")
    for split, own in split_lines(lines).items():
        write_bytes(raw / f"{split}.txt", b"".join(own))
    prepare_text(output, raw, chosen={}, pieces=args.start.parent, merges=None, workers=_WORKERS)
    return output


def _check_encoding(one: "FineTuning") -> None:
    """Compose the trainings, and refuse an encoding that the attention cannot have."""
    from fairseq_plugins.experiments import EXPERIMENTS

    for training in one.trainings():
        error = EXPERIMENTS["lrpe_glue"].incompatibility(training.config["model"])
        if error is not None:
            raise OptionError(str(error))


def _comparison(args: argparse.Namespace, task: "GlueTask", results: "Sequence[Result]") -> str:
    """Compare all pairs of encodings by the first metric of the task."""
    from fairseq_plugins.papers.tables import Column, Table
    from fairseq_plugins.report.pairwise_runs import compare

    metric = task.metrics[0]
    column = Column(metric, metric, higher_is_better=True)
    table = Table("finetune", args.data.name, "", "lrpe_glue", (column,), ())
    return compare(args.encoding, args.attention, table, results).text()


def _write_predictions(args: argparse.Namespace, one: "FineTuning") -> None:
    """Write the given lines with their predictions beside the model."""
    from fairseq_plugins.common.files import read_bytes, write_text
    from fairseq_plugins.glue.read import read_lines

    (_, header), *lines = read_lines(args.predict, read_bytes(args.predict))
    is_number = one.data.task.labels.is_number
    rows = [f"{header}\tprediction" + ("" if is_number else "\tprobability")]
    for (_, line), found in zip(lines, one.predict(), strict=True):
        shown = f"{found.value:.4f}" if is_number else f"{found.value}\t{found.probability:.4f}"
        rows.append(f"{line}\t{shown}")
    path = ROOT / one.folder / "predictions.tsv"
    write_text(path, "\n".join(rows) + "\n")
    print(f"Written: {from_root(path)}")


main = command(get_parser, run, quiet=True, if_stopped="Stopped. The same command goes on.")

if __name__ == "__main__":
    sys.exit(main())
