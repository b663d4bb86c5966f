"""Preparation of GLUE for fairseq's task sentence_prediction (scripts/prepare_glue.sh).

python -m fairseq_plugins.glue.prepare --bpe DIR [--from DIR ...] [options]

Each task becomes a folder with input0/, input1/ and label/, as fairseq's
examples/roberta/preprocess_GLUE_tasks.sh makes it, and a data.json.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError, WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import find_packed
from fairseq_plugins.common.option_types import parse_seed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.folders import Folder, build_folder, report
from fairseq_plugins.data.options import (
    add_force,
    add_output,
    add_tokenizer,
    add_workers,
    check_at_least,
    check_folder,
    program,
)
from fairseq_plugins.data.tokenizers import Tokenizer, load_tokenizer
from fairseq_plugins.glue import official
from fairseq_plugins.glue.read import SplitText, read_split
from fairseq_plugins.glue.sampling import hold_out, sample, without_seen
from fairseq_plugins.glue.tasks import GLUE, HELD_OUT, GlueTask, Labels, find_tasks
from fairseq_plugins.glue.write import binarise, files_of, write_labels, write_subwords

PREPARATION_VERSION = 1  # increase when a request gives other files


@dataclass(frozen=True)
class TaskFiles:
    """A task's files in one folder: path by split, and the missing files."""

    task: GlueTask
    folder: Path
    paths: Mapping[str, Path]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    """Settings of the preparation of tasks."""

    bpe: Path  # folder of the tokenizer
    max_train: int | None = None  # most training examples; None for all
    max_valid: int | None = None  # most examples of each development set; None for all
    held_out: int | None = None  # training examples set aside as a split of their own
    seed: int = 1  # of the samples
    workers: int = 1  # processes that binarise
    disjoint: bool = False  # drop training examples whose first sentence is in another set
    # Most tokens of an example, with special ones; the longer sentence of a pair is cut first.
    max_length: int | None = None
    force: bool = False  # replace folders of other files or settings


def find_files(task: GlueTask, sources: Sequence[Path]) -> TaskFiles:
    """Find the first folder with the task's training and development file.

    Files of two folders are never mixed: they may split the same examples differently.

    Raises:
        DataError: no folder has both; the message lists what each lacks.
    """
    lacks = []
    for source in sources:
        folder = source / task.name
        paths = {s.name: path for s in task.splits if (path := find_packed(folder, s.file))}
        absent = [split for split in task.splits if split.name not in paths]
        needed = [split.file for split in absent if split.required]
        if not needed:
            return TaskFiles(task, folder, paths, tuple(split.file for split in absent))
        lacks.append(f"{folder} lacks {' and '.join(needed)}")
    raise DataError(f"{task.name}: {'; '.join(lacks)}")


def prepare(
    tasks: Sequence[GlueTask],
    output: Path,
    options: Options,
    sources: Sequence[Path] = (),
    *,
    skip_missing: bool = False,
) -> list[str]:
    """Make output/<task> for each task, unless present; return the tasks' names.

    sources: folders with <task>/*.tsv; if empty, the official files are downloaded to
    `downloads/glue` next to the output. skip_missing: whether to report and skip a task without
    files, instead of raising.

    Raises:
        DataError: something is missing, damaged or different; no task is made then.
    """
    for source in sources:
        check_folder(source)
    check_at_least(1, workers=options.workers)
    check_at_least(
        2, max_train=options.max_train, max_valid=options.max_valid, held_out=options.held_out
    )
    tokenizer = load_tokenizer(options.bpe)
    located = []
    for task in tasks:
        try:
            downloads = output.parent / "downloads" / "glue"
            located.append(find_files(task, sources or [official.fetch(task, downloads)]))
        except (DataError, WorkError) as error:
            if not skip_missing:
                raise
            report(f"missing: {error}")
    if not located:
        raise DataError("no task can be prepared")
    return prepare_files(located, output, options, tokenizer)


def prepare_files(
    located: Sequence[TaskFiles], output: Path, options: Options, tokenizer: Tokenizer
) -> list[str]:
    """Make output/<task> for each task whose files are known; return their names.

    Raises:
        DataError: anything damaged or different, before any task is made.
    """
    checked = []
    for found in located:
        task = found.task
        if found.missing:
            report(f"{task.name}: {found.folder} has no {', '.join(found.missing)}")
        splits = _read(found, options)
        request = _request(task, splits, tokenizer, options)
        files = files_of(task, tuple(splits))
        folder = Folder(output / task.name, request, files, force=options.force)
        folder.refuse_other()
        checked.append((folder, found, splits))
    for folder, found, splits in checked:
        _make(folder, found, splits, tokenizer, options)
    names = [found.task.name for found in located]
    report(f"prepared in {output}: {', '.join(names)}")
    return names


def _read(files: TaskFiles, options: Options) -> dict[str, SplitText]:
    """Read and check the splits; sample the training and the development set."""
    task = files.task
    read = {n: read_split(path, task, task.split(n)) for n, path in files.paths.items()}
    if options.disjoint and task.inputs > 1:
        read["train"] = without_seen(read["train"], [s for n, s in read.items() if n != "train"])
    splits = {}
    for name, split in read.items():
        most = None
        if task.split(name).label:
            most = options.max_train if name == "train" else options.max_valid
        kept = sample(split.examples, most, f"{options.seed}/{task.name}")
        splits[name] = replace(split, examples=kept)
    if options.held_out is not None:
        parts = hold_out(
            splits["train"], options.held_out, f"{options.seed}/{task.name}", task.labels.classes
        )
        if options.disjoint and task.inputs > 1:
            parts["train"] = without_seen(parts["train"], [parts[HELD_OUT]])
        splits |= parts
    train = splits["train"].examples
    absent = set(task.labels.classes) - {example.label for example in train}
    if absent:
        raise DataError(
            f"{files.paths['train']}: none of the {len(train)} examples taken has the label "
            f"{' or '.join(sorted(absent))}; "
            + ("increase --max-train" if options.max_train else "more examples of it are needed")
        )
    return splits


def special_tokens(task: GlueTask, tokenizer: Tokenizer) -> int:
    """Return the number of special tokens in an example, as `<s> a </s> b </s>` of BERT."""
    return 2 if task.inputs == 1 else 2 + tokenizer.separators


def _request(
    task: GlueTask, splits: Mapping[str, SplitText], tokenizer: Tokenizer, options: Options
) -> dict[str, Any]:
    own_scale = task.labels.is_number and task.labels != Labels()
    is_pair_held_out = options.held_out is not None and task.inputs > 1
    optional = {
        "held_out": options.held_out,
        "disjoint": options.disjoint and (HELD_OUT if is_pair_held_out else True),
        "max_length": options.max_length,
        "labels": own_scale and [task.labels.lowest, task.labels.highest],
    }
    return {
        "preparation": PREPARATION_VERSION,
        "corpus": f"glue/{task.name}",
        "files": {name: split.sha256 for name, split in splits.items()},
        "pieces": tokenizer.sums(),
        "max_train": options.max_train,
        "max_valid": options.max_valid,
        **{name: value for name, value in optional.items() if value},
        "seed": options.seed,
    }


def _make(
    folder: Folder,
    files: TaskFiles,
    splits: Mapping[str, SplitText],
    tokenizer: Tokenizer,
    options: Options,
) -> None:
    with build_folder(folder) as work:
        if not work:
            return
        # slow to import; --help stays fast
        from fairseq_plugins.glue.baselines import score_baselines, seen_first_sentences

        built, workers = work / "built", options.workers
        tokens: dict[str, int] = dict.fromkeys(splits, 0)
        parts = [f"input{i}" for i in range(files.task.inputs)]
        for part in parts:
            (built / part).mkdir(parents=True)
            (work / part).mkdir()
            tokenizer.dictionary.save(str(built / part / "dict.txt"))
        room = options.max_length and options.max_length - special_tokens(files.task, tokenizer)
        for name, split in splits.items():
            texts = [work / part / name for part in parts]
            write_subwords(split, tokenizer, texts, f"{files.task.name} {name}", room)
            for part, text in zip(parts, texts, strict=True):
                tokens[name] += binarise(text, built / part / name, tokenizer.dictionary, workers)
        write_labels(files.task, splits, work, built / "label", workers)
        about = {
            "splits": {
                name: {
                    "file": split.file,
                    "sha256": split.sha256,
                    "examples": len(split.examples),
                    "dropped_lines": split.dropped,
                    "tokens": tokens[name],
                }
                for name, split in splits.items()
            },
            "missing": list(files.missing),
            "separators": tokenizer.separators,
            "floors": score_baselines(files.task, splits),
            "seen_first_sentences": seen_first_sentences(files.task, splits),
        }
        counts = ", ".join(f"{name} {len(split.examples)}" for name, split in splits.items())
        folder.finish(built, _origin(files), about, counts)


def _origin(files: TaskFiles) -> dict[str, Any]:
    fetched = files.folder / official.ORIGIN_FILE
    if fetched.is_file():
        return {"urls": json.loads(fetched.read_text())}
    return {"from": files.folder.parent.resolve().name}


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog=program("prepare_glue"),
        description="Make GLUE's data folders for sentence_prediction.",
    )
    add_tokenizer(parser, "the pre-training's tokenizer")
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="extend",
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders with <TASK>/*.tsv, plain, .xz or .gz; a task is read from the first that has "
        "it (default: download the official files)",
    )
    names = ",".join(task.name for task in GLUE)
    text = f"tasks, separated by commas (default: all of {names} that are available)"
    parser.add_argument("--tasks", metavar="NAMES", help=text)
    add_output(parser, "glue", "where <TASK>/ is made")
    for option, text in (
        ("--max-train", "use at most N training examples of each task, sampled by --seed"),
        ("--max-valid", "the same for each development set"),
        ("--held-out", "set N training examples aside as split held_out, for model selection"),
    ):
        parser.add_argument(option, type=int, metavar="N", help=text)
    text = "drop training examples whose first sentence is in an evaluation set"
    parser.add_argument("--disjoint", action="store_true", help=text)
    text = "seed of --max-train, --max-valid and --held-out (default: 1)"
    parser.add_argument("--seed", type=parse_seed, default=1, help=text)
    add_workers(parser, "processes that binarise", default=1)
    add_force(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Prepare the chosen tasks."""
    names = {field.name for field in fields(Options)} - {"max_length"}
    options = Options(**{name: getattr(args, name) for name in names})
    tasks = find_tasks(args.tasks.split(",")) if args.tasks else GLUE
    prepare(tasks, args.output, options, args.sources, skip_missing=not args.tasks)


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
