"""GLUE for fairseq's task sentence_prediction: the Python behind scripts/prepare_glue.sh.

python -m fairseq_plugins.glue.prepare --bpe DIR [--from DIR ...] [options]

Each task becomes a folder with input0/, input1/ and label/, as fairseq's
examples/roberta/preprocess_GLUE_tasks.sh makes it, and a data.json.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from fairseq_plugins.common.errors import DataError, OptionError, WorkError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import find_packed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.seeds import parse_seed
from fairseq_plugins.data.folders import Folder, build_folders, report
from fairseq_plugins.data.options import (
    add_output,
    add_tokenizer,
    add_workers,
    check_at_least,
    check_folder,
    program,
)
from fairseq_plugins.data.tokenizers import Tokenizer, load_tokenizer
from fairseq_plugins.glue import official
from fairseq_plugins.glue.read import Example, SplitText, read_split
from fairseq_plugins.glue.tasks import GLUE, HELD_OUT, GlueTask, find_tasks

if TYPE_CHECKING:  # fairseq takes seconds, which a command's --help must not
    from fairseq.data import Dictionary

PREPARATION_VERSION = 1  # raise when the same request would give other files
LINES_PER_REPORT = 100_000


@dataclass(frozen=True)
class Found:
    """A task's files in one of the folders: split -> path, and what that folder lacks."""

    task: GlueTask
    folder: Path
    paths: Mapping[str, Path]
    missing: tuple[str, ...]


def files_of(task: GlueTask, splits: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a task's data folder with these splits."""
    parts = [f"input{i}" for i in range(task.inputs)]
    names = [f"{part}/dict.txt" for part in parts]
    names += [f"{p}/{s}.{x}" for p in parts for s in splits for x in ("bin", "idx")]
    labelled = [s for s in splits if task.split(s).label]
    if task.labels.is_number:
        return (*names, *(f"label/{s}.label" for s in labelled))
    labels = [f"label/{s}.{x}" for s in labelled for x in ("bin", "idx")]
    return (*names, "label/dict.txt", *labels)


@dataclass(frozen=True)
class Options:
    """Settings of the preparation of tasks.

    max_train, max_valid: of each set; None for the whole. held_out: so many of the training
    examples taken become a split of their own; None for no such split. disjoint: whether training
    examples are left out whose first sentence the development set has, too.
    """

    bpe: Path
    max_train: int | None = None
    max_valid: int | None = None
    held_out: int | None = None
    seed: int = 1
    workers: int = 1
    disjoint: bool = False


def find(task: GlueTask, sources: Sequence[Path]) -> Found:
    """The first folder that has the task's training and development file.

    A task is taken from one folder alone: two may have parted the same examples otherwise, and a
    training set from one could hold the development set of the other.

    Raises:
        DataError: no folder has both; it says what each one lacks.
    """
    lacks = []
    for source in sources:
        folder = source / task.name
        paths = {s.name: path for s in task.splits if (path := find_packed(folder, s.file))}
        missing = tuple(split.file for split in task.splits if split.name not in paths)
        if all(split.name in paths for split in task.splits if split.required):
            return Found(task, folder, paths, missing)
        needed = [s.file for s in task.splits if s.required and s.name not in paths]
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
    """Make output/<task> for each task, where not yet made; return the names of those there.

    sources: folders with <task>/*.tsv; without one the official files are downloaded to
    `downloads/glue` beside output, and kept. skip_missing: whether a task that no folder has is
    said and left out, or refused.
    Raises DataError for anything missing, damaged or different, before any task is made.
    """
    for source in sources:
        check_folder(source)
    check_at_least(1, workers=options.workers)
    check_at_least(
        2, max_train=options.max_train, max_valid=options.max_valid, held_out=options.held_out
    )
    pieces = load_tokenizer(options.bpe)
    located = []
    for task in tasks:
        try:
            places = sources or [official.fetch(task, output.parent / "downloads" / "glue", report)]
            located.append(find(task, places))
        except (DataError, WorkError) as error:
            if not skip_missing:
                raise
            report(f"missing: {error}")
    if not located:
        raise DataError("no task can be prepared")
    for found in located:
        if found.missing:
            report(f"{found.task.name}: {found.folder} has no {', '.join(found.missing)}")
    texts = [_read(found, options) for found in located]
    folders = [
        Folder(
            output / found.task.name,
            _request(found.task, splits, pieces, options),
            files_of(found.task, tuple(splits)),
        )
        for found, splits in zip(located, texts, strict=True)
    ]
    for folder in folders:
        folder.refuse_foreign()
    for folder, found, splits in zip(folders, located, texts, strict=True):
        _make(folder, found, splits, pieces, options.workers)
    names = [found.task.name for found in located]
    report(f"prepared in {output}: {', '.join(names)}")
    return names


def _read(found: Found, options: Options) -> dict[str, SplitText]:
    """The checked splits, those for training and development sampled."""
    task = found.task
    read = {n: read_split(path, task, task.split(n)) for n, path in found.paths.items()}
    if options.disjoint and task.inputs > 1:
        read["train"] = without_seen(read["train"], [s for n, s in read.items() if n != "train"])
    splits = {}
    for name, split in read.items():
        most = None
        if task.split(name).label:
            most = options.max_train if name == "train" else options.max_valid
        kept = sample(split.examples, most, f"{options.seed}/{task.name}")
        splits[name] = SplitText(split.file, split.sha256, kept, split.dropped)
    if options.held_out is not None:
        splits |= hold_out(splits["train"], options.held_out, f"{options.seed}/{task.name}")
    train = splits["train"].examples
    absent = set(task.labels.classes) - {example.label for example in train}
    if absent:
        raise DataError(
            f"{found.paths['train']}: of the {len(train)} examples taken none has the label "
            f"{' or '.join(sorted(absent))}; a larger --max-train has"
        )
    return splits


def without_seen(train: SplitText, others: Sequence[SplitText]) -> SplitText:
    """Leave out of the training set the examples whose first sentence another set has."""
    seen = {example.sentences[0] for other in others for example in other.examples}
    kept = [example for example in train.examples if example.sentences[0] not in seen]
    return replace(train, examples=tuple(kept))


def sample(examples: Sequence[Example], most: int | None, seed: str) -> tuple[Example, ...]:
    """At most so many, drawn by the seed, in their order."""
    if most is None or most >= len(examples):
        return tuple(examples)
    chosen = Random(seed).sample(range(len(examples)), most)
    return tuple(examples[i] for i in sorted(chosen))


def hold_out(train: SplitText, count: int, seed: str) -> dict[str, SplitText]:
    """The training set as two, `train` and `held_out`, of which the second has so many examples.

    Raises:
        OptionError: as many or more than there are.
    """
    total = len(train.examples)
    if count >= total:
        raise OptionError(
            f"--held-out must be below the {total} training examples taken of {train.file}, "
            f"but is {count}"
        )
    chosen = set(Random(f"{seed}/{HELD_OUT}").sample(range(total), count))
    parts: dict[str, list[Example]] = {"train": [], HELD_OUT: []}
    for number, example in enumerate(train.examples):
        parts[HELD_OUT if number in chosen else "train"].append(example)
    return {
        name: SplitText(train.file, train.sha256, tuple(examples), train.dropped)
        for name, examples in parts.items()
    }


def _request(
    task: GlueTask, splits: Mapping[str, SplitText], pieces: Tokenizer, options: Options
) -> dict[str, Any]:
    held_out = {} if options.held_out is None else {"held_out": options.held_out}
    disjoint = {"disjoint": True} if options.disjoint else {}
    return {
        "preparation": PREPARATION_VERSION,
        "corpus": f"glue/{task.name}",
        "files": {name: split.sha256 for name, split in splits.items()},
        "pieces": pieces.sums(),
        "max_train": options.max_train,
        "max_valid": options.max_valid,
        **held_out,
        **disjoint,
        "seed": options.seed,
    }


def _make(
    folder: Folder, found: Found, splits: Mapping[str, SplitText], pieces: Tokenizer, workers: int
) -> None:
    with build_folders(folder) as (work, wanted):
        if not wanted:
            return
        # scikit-learn, which --help must not load
        from fairseq_plugins.glue.floors import floors, seen_first_sentences

        built = work / "built"
        tokens: dict[str, int] = dict.fromkeys(splits, 0)
        for i in range(found.task.inputs):
            part, text = built / f"input{i}", work / f"input{i}"
            part.mkdir(parents=True)
            text.mkdir()
            pieces.dictionary.save(str(part / "dict.txt"))
            for name, split in splits.items():
                _write_pieces(split, i, pieces, text / name, f"{found.task.name} {name}")
                tokens[name] += _binarise(text / name, part / name, pieces.dictionary, workers)
        _write_labels(found.task, splits, work, built / "label", workers)
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
            "missing": list(found.missing),
            "separators": pieces.separators,
            "floors": floors(found.task, splits),
            "seen_first_sentences": seen_first_sentences(found.task, splits),
        }
        counts = ", ".join(f"{name} {len(split.examples)}" for name, split in splits.items())
        folder.finish(built, _origin(found), about, counts)


def _origin(found: Found) -> dict[str, Any]:
    fetched = found.folder / official.ORIGIN_FILE
    if fetched.is_file():
        return {"urls": json.loads(fetched.read_text())}
    return {"from": found.folder.parent.resolve().name}


def _write_pieces(
    split: SplitText, column: int, pieces: Tokenizer, target: Path, name: str
) -> None:
    """Write a line of tokens for each example, an empty one for a sentence without any."""
    with target.open("w", encoding="utf-8") as out:
        for number, example in enumerate(split.examples, start=1):
            out.write(" ".join(pieces.tokenize(example.sentences[column])) + "\n")
            if number % LINES_PER_REPORT == 0:
                report(f"{name}, input{column}: {number} of {len(split.examples)} lines")


def _binarise(text: Path, prefix: Path, dictionary: "Dictionary", workers: int) -> int:
    """Binarise a file as fairseq-preprocess does, without its start-up; return its tokens."""
    from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer

    summary = FileBinarizer.multiprocess_dataset(
        str(text),
        "mmap",
        VocabularyDatasetBinarizer(dictionary, append_eos=True),
        str(prefix),
        vocab_size=len(dictionary),
        num_workers=workers,
    )
    return int(summary.num_tok)


def _write_labels(
    task: GlueTask, splits: Mapping[str, SplitText], work: Path, target: Path, workers: int
) -> None:
    """Classes binarised with a dictionary of the training labels; numbers as text in [0, 1]."""
    from fairseq.tasks import FairseqTask

    target.mkdir()
    text = work / "label"
    text.mkdir()
    labelled = {name: split for name, split in splits.items() if task.split(name).label}
    for name, split in labelled.items():
        labels = [example.label or "" for example in split.examples]
        if task.labels.is_number:
            # Six digits, as awk prints them in fairseq's script.
            scaled = "".join(f"{float(label) / task.labels.highest:.6g}\n" for label in labels)
            (target / f"{name}.label").write_text(scaled)
        else:
            (text / name).write_text("".join(f"{label}\n" for label in labels))
    if task.labels.is_number:
        return
    dictionary = FairseqTask.build_dictionary([str(text / "train")], workers, padding_factor=8)
    dictionary.save(str(target / "dict.txt"))
    for name in labelled:
        _binarise(text / name, target / name, dictionary, workers)


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = Parser(
        prog=program("prepare_glue"),
        description="Make GLUE's data folders for sentence_prediction.",
    )
    add_tokenizer(parser, "the pre-training's tokenizer", required=True)
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="extend",
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders with <TASK>/*.tsv, plain, .xz or .gz, the first that has a task is used "
        "(default: download the official files)",
    )
    names = ",".join(task.name for task in GLUE)
    text = f"separated by commas (default: those there of {names})"
    parser.add_argument("--tasks", metavar="NAMES", help=text)
    add_output(parser, "glue", "where <TASK>/ is made")
    for option, text in (
        ("--max-train", "take at most N training examples of each task, drawn by --seed"),
        ("--max-valid", "the same of each development set"),
        ("--held-out", "set N of the training examples aside, as split held_out, to choose on"),
    ):
        parser.add_argument(option, type=int, metavar="N", help=text)
    text = "leave out training examples whose first sentence an example to evaluate on has, too"
    parser.add_argument("--disjoint", action="store_true", help=text)
    text = "of --max-train, --max-valid and --held-out (default: 1)"
    parser.add_argument("--seed", type=parse_seed, default=1, help=text)
    add_workers(parser, "processes that binarise", default=1)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    args = get_parser().parse_args(arguments)
    options = Options(
        args.bpe,
        args.max_train,
        args.max_valid,
        args.held_out,
        args.seed,
        args.workers,
        args.disjoint,
    )

    def work() -> None:
        tasks = find_tasks(args.tasks.split(",")) if args.tasks else GLUE
        prepare(tasks, args.output, options, args.sources, skip_missing=not args.tasks)

    return exit_status(args.program, work)


if __name__ == "__main__":
    sys.exit(main())
