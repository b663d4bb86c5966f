"""The command `fairseq-pe finetune`: prepare labelled examples, fine-tune, compare and predict."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

from fairseq_plugins.common.cpu import usable_cores
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import read_bytes, short_stem, write_text
from fairseq_plugins.common.provenance import commit, describe_data
from fairseq_plugins.common.root import ROOT, configs_folder, data_folder, from_root, root_folder
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.one_text import prepare_splits, split_lines
from fairseq_plugins.data.plain_text import read_lines as read_text
from fairseq_plugins.data.tokenizers import load_tokenizer
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.rows import check_row, runnable_rows
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.glue import custom
from fairseq_plugins.glue import prepare as glue_prepare
from fairseq_plugins.glue.read import read_lines, read_split
from fairseq_plugins.glue.tasks import GlueTask
from fairseq_plugins.papers.tables import Column, Table
from fairseq_plugins.records.recipe import COMPOSITION_ERRORS, in_a_line
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.pairwise_runs import compare
from fairseq_plugins.runner.checkpoints import exclusive
from fairseq_plugins.runner.finetuning import OWN_ENCODING, Data, FineTuning, Settings
from fairseq_plugins.runner.launcher import get_launchers
from fairseq_plugins.runner.progress import DONE, Progress
from fairseq_plugins.runner.table_runner import warn_of_changes

_WORKERS = 2
# Passes of an adaptation over its text, within limits of its updates.
PASSES, FEWEST_UPDATES, MOST_UPDATES = 25, 100, 300
TOKENS_OF_AN_UPDATE = 1024
SECONDS_OF_AN_UPDATE = 1.5  # of MiniLM on two cores


def fine_tune(args: argparse.Namespace) -> None:
    """Fine-tune a model with each encoding from each seed, and compare them.

    args: of `fairseq-pe finetune`.
    """
    _check_start_and_encodings(args)
    task = custom.read_task(args.data, args.valid, args.predict, args.labels)
    kind = "numbers" if task.labels.is_number else f"{len(task.labels.classes)} classes"
    inputs = "one sentence" if task.inputs == 1 else "two sentences"
    print(f"{args.data.name}: {inputs} in each example, labels are {kind}", flush=True)

    runs = _plan(args, task)
    try:
        for one in runs:
            if not args.force:
                one.check_recorded()
            for training in one.trainings():
                error = EXPERIMENTS["lrpe_glue"].incompatibility(training.config["model"])
                if error is not None:
                    raise OptionError(str(error))
    except COMPOSITION_ERRORS as refused:
        raise OptionError(f"--encoding {one.settings.encoding}: {in_a_line(refused)}") from None
    if left := [one for one in runs if args.force or not one.is_done]:
        print(_intention(left), flush=True)
    results, lines = [], []
    head = commit(ROOT)  # read before training, as files may change meanwhile
    with (
        get_launchers(ROOT, 0, [{"OMP_NUM_THREADS": str(usable_cores())}]) as (launcher,),
        Progress(args.data.name, [one.name for one in runs]) as progress,
    ):
        warn_of_changes(ROOT, head, progress.say)
        for one in runs:
            with exclusive(ROOT / one.folder, progress.say):
                if args.force:
                    one.remove()
                metrics = one.run(launcher, progress, head)
            numbers = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
            progress.change(one.name, DONE, numbers)
            lines.append(f"{one.name}: {numbers}")
            cell = {"row": one.settings.encoding, "attention": args.attention, "seed": one.seed}
            results.append({**cell, "metrics": metrics})
    print("\n".join(lines), flush=True)
    if len(args.encoding) > 1:
        print(f"\n{_comparison(args, task, results)}\n")
    if args.predict:
        _write_predictions(args, runs[0])


def _intention(runs: Sequence[FineTuning]) -> str:
    """Describe the numbers of models and updates, and the minutes that they take."""
    adapting = sum(one.settings.adapt_updates for one in runs if one.settings.changes_start)
    tuning = sum(one.updates for one in runs)
    minutes = math.ceil((adapting + tuning) * SECONDS_OF_AN_UPDATE / 60)
    return (
        f"Models: {len(runs)}; updates: {adapting} to adapt to the start, {tuning} to fine-tune. "
        f"With MiniLM about {minutes} min on two idle cores; the time left is printed from the "
        "first updates on."
    )


def _check_start_and_encodings(args: argparse.Namespace) -> None:
    """Check the encodings and the start, and set the path of the start's checkpoint."""
    for name in args.encoding:
        check_row(runnable_rows(configs_folder(ROOT)), name, "--encoding must be")
    if {*OWN_ENCODING} <= {*args.encoding}:
        names = " and ".join(OWN_ENCODING)
        raise OptionError(f"--encoding must have one of {names}, the same model, but has both")
    start = args.start or ROOT / root_folder("checkpoints") / "start"
    args.start = start / "model.pt" if start.is_dir() else start
    if not args.start.is_file():
        raise OptionError(
            f"--start must be a folder or checkpoint of `fairseq-pe prepare start`, but {start} is "
            "not there"
        )


def _plan(args: argparse.Namespace, task: GlueTask) -> list[FineTuning]:
    """Prepare the data, and plan all fine-tunings, seed by seed."""
    folder = ROOT / root_folder("checkpoints") / "finetune" / short_stem(args.data)
    output = args.output.absolute() if args.output else folder
    start = PretrainedModel.read_sizes(ROOT, args.start)
    settings = [
        Settings(name, args.attention, args.epochs, args.batch_size, args.lr, args.max_length)
        for name in args.encoding
    ]
    adapts = any(one.changes_start for one in settings)
    for option, value in (("--text", args.text), ("--adapt-updates", args.adapt_updates)):
        if value is not None and not adapts:
            raise OptionError(
                f"{option} must be left out where no model is adapted, as with --encoding "
                f"{', '.join(args.encoding)} under {args.attention} attention, but is {value}"
            )
    data = _prepare(args, task, start.within(args.max_length), adapts=adapts)
    updates = args.adapt_updates or _adapt_updates(data)
    settings = [replace(one, adapt_updates=updates) for one in settings]
    return [
        FineTuning(ROOT, from_root(output), data, start, one, seed)
        for seed in args.seeds
        for one in settings
    ]


def _adapt_updates(data: Data) -> int:
    """Choose the updates of an adaptation by the amount of its text."""
    if data.text is None:
        return FEWEST_UPDATES
    # Words of its files are subwords.
    tokens = describe_data(ROOT / data.text)["splits"]["train"]["words"]
    return min(MOST_UPDATES, max(FEWEST_UPDATES, PASSES * tokens // TOKENS_OF_AN_UPDATE))


def _prepare(args: argparse.Namespace, task: GlueTask, longest: int, *, adapts: bool) -> Data:
    """Make the data folder of the examples and, if a model is adapted, that of plain text.

    longest: most tokens of an example.
    """
    given = {"train": args.data, "valid": args.valid, "test": args.predict}
    paths = {name: path for name, path in given.items() if path is not None}
    sums = {name: sha256(path) for name, path in paths.items()}
    pieces = load_tokenizer(args.start.parent)
    fewest = glue_prepare.special_tokens(task, pieces) + task.inputs
    if longest < fewest:
        raise OptionError(f"--max-length must be at least {fewest}, but is {longest}")
    sums["tokenizer"] = pieces.fingerprint()
    name = (
        f"finetune-{short_stem(args.data)}-{'-'.join(one[:6] for one in sums.values())}-{longest}"
    )
    total = len(read_split(args.data, task, task.split("train")).examples)
    held_out = None if args.valid else custom.held_out_size(total)
    if held_out is not None and total <= held_out:
        raise DataError(
            f"DATA must have at least {held_out + 1} examples, of which {held_out} are held out, "
            f"or --valid be given, but {args.data} has {total}"
        )
    lines = _text_to_adapt_on(args, task) if adapts else None
    task = replace(task, name="examples")
    # Folders are named by their data, so nothing else is replaced.
    options = glue_prepare.Options(
        args.start.parent, held_out=held_out, workers=_WORKERS, max_length=longest, force=True
    )
    found = glue_prepare.TaskFiles(task, args.data.parent, paths, ())
    folder = data_folder(name)
    glue_prepare.prepare_files([found], folder, options, pieces)
    text = None
    if lines is not None:
        output, raw = (folder.with_name(f"{name}-text{end}") for end in ("", "-raw"))
        prepare_splits(lines, raw, output, tokenizer=args.start.parent, workers=_WORKERS)
        text = from_root(output)
    sums.pop("test", None)  # predictions change no model
    if task.labels.is_number:
        sums["labels"] = f"{task.labels.lowest:g} to {task.labels.highest:g}"
    if args.text:
        sums["text"] = sha256(args.text)
    return Data(task, from_root(folder / task.name), total - (held_out or 0), text, sums)


def _text_to_adapt_on(args: argparse.Namespace, task: GlueTask) -> dict[str, list[bytes]]:
    """Split the sentences of the examples, and the lines of `--text`, into plain texts."""
    lines = custom.text_lines(args.data, task.splits[0].sentences)
    lines += [*read_text(args.text)] if args.text else []
    name = "the text to adapt on (the sentences of DATA, and --text FILE)"
    return split_lines(lines, name)


def _comparison(args: argparse.Namespace, task: GlueTask, results: Sequence[Result]) -> str:
    """Compare all pairs of encodings by the first metric of the task."""
    metric = task.metrics[0]
    column = Column(metric, metric, higher_is_better=True)
    table = Table("finetune", args.data.name, "", "lrpe_glue", (column,), ())
    return compare(args.encoding, args.attention, table, results).text()


def _write_predictions(args: argparse.Namespace, one: FineTuning) -> None:
    """Write the given lines with their predictions beside the model."""
    (_, header), *lines = read_lines(args.predict, read_bytes(args.predict))
    is_number = one.data.task.labels.is_number
    rows = [f"{header}\tprediction" + ("" if is_number else "\tprobability")]
    for (_, line), found in zip(lines, one.predict(), strict=True):
        shown = f"{found.value:.7g}" if is_number else f"{found.value}\t{found.probability:.4f}"
        rows.append(f"{line}\t{shown}")
    path = ROOT / one.folder / f"{short_stem(args.predict)}-predictions.tsv"
    write_text(path, "\n".join(rows) + "\n")
    print(f"Written: {from_root(path)}")
