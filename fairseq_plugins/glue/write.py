"""Binarised sentences and labels of a GLUE task, as fairseq's sentence_prediction reads them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.common.progress import track
from fairseq_plugins.data.folders import report
from fairseq_plugins.data.tokenizers import UNKNOWN, Tokenizer, report_unknown
from fairseq_plugins.glue.read import SplitText
from fairseq_plugins.glue.tasks import GlueTask

if TYPE_CHECKING:  # slow to import; --help stays fast
    from fairseq.data import Dictionary


def files_of(task: GlueTask, splits: Sequence[str]) -> tuple[str, ...]:
    """List the files of a task's data folder with these splits."""
    parts = [f"input{i}" for i in range(task.inputs)]
    names = [f"{part}/dict.txt" for part in parts]
    names += [f"{p}/{s}.{x}" for p in parts for s in splits for x in ("bin", "idx")]
    labelled = [s for s in splits if task.split(s).label]
    if task.labels.is_number:
        return (*names, *(f"label/{s}.label" for s in labelled))
    labels = [f"label/{s}.{x}" for s in labelled for x in ("bin", "idx")]
    return (*names, "label/dict.txt", *labels)


def kept_tokens(lengths: Sequence[int], room: int) -> list[int]:
    """Return how many tokens of one or two sentences fit; the longer is cut first, as in BERT."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    (first, second), half = lengths, room // 2
    return [min(first, max(room - second, room - half)), min(second, max(room - first, half))]


def write_subwords(
    split: SplitText, tokenizer: Tokenizer, targets: Sequence[Path], name: str, room: int | None
) -> None:
    """Write a line of tokens for each example, empty for an empty sentence.

    targets: a file for each of an example's sentences. room: most tokens of an example; None for
    any number.
    """
    cut = unknown = total = 0
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in targets]
        for example in track(split.examples, f"encoding {name}", unit="examples", lasting=False):
            tokens = [tokenizer.tokenize(sentence) for sentence in example.sentences]
            lengths = [len(one) for one in tokens]
            kept = lengths if room is None else kept_tokens(lengths, room)
            cut += kept != lengths
            for file, one, count in zip(files, tokens, kept, strict=True):
                file.write(" ".join(one[:count]) + "\n")
                unknown += one.count(UNKNOWN)
                total += len(one)
    report_unknown(name, unknown, total)
    if cut:
        report(f"{name}: {cut} of {len(split.examples)} examples cut to {room} tokens")


def binarise(text: Path, prefix: Path, dictionary: "Dictionary", workers: int) -> int:
    """Binarise a file as fairseq-preprocess does, and return its number of tokens."""
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


def write_labels(
    task: GlueTask, splits: Mapping[str, SplitText], work: Path, target: Path, workers: int
) -> None:
    """Write classes binarised by a dictionary of the training labels, or numbers in [0, 1]."""
    from fairseq.tasks import FairseqTask

    target.mkdir()
    text = work / "label"
    text.mkdir()
    labelled = {name: split for name, split in splits.items() if task.split(name).label}
    for name, split in labelled.items():
        labels = [example.label or "" for example in split.examples]
        if task.labels.is_number:
            # Six digits, as fairseq's script prints them with awk.
            scaled = "".join(f"{task.labels.scale(float(label)):.6g}\n" for label in labels)
            (target / f"{name}.label").write_text(scaled)
        else:
            (text / name).write_text("".join(f"{label}\n" for label in labels))
    if task.labels.is_number:
        return
    dictionary = FairseqTask.build_dictionary([str(text / "train")], workers, padding_factor=8)
    dictionary.save(str(target / "dict.txt"))
    for name in labelled:
        binarise(text / name, target / name, dictionary, workers)
