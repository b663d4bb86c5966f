"""Statistics of text files: lines, words, bytes and hashes, and the unigram baseline."""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairseq_plugins.data.folders import report

_UNKNOWN, _END = "<unk>", "</s>"


@dataclass(frozen=True)
class MeasuredText:
    """Statistics of a text file; ``word_counts`` maps each word to its count."""

    path: Path
    lines: int
    words: int
    bytes: int
    sha256: str
    word_counts: Counter[str] = field(repr=False)

    @property
    def types(self) -> int:
        return len(self.word_counts)


def copy_and_measure(stream: Iterable[bytes], target: Path) -> MeasuredText:
    """Copy lines of UTF-8 text to a file while counting and hashing them."""
    digest = hashlib.sha256()
    counts: Counter[str] = Counter()
    lines = size = 0
    with target.open("wb") as copy:
        for line in stream:
            copy.write(line)
            digest.update(line)
            counts.update(line.decode().split())
            lines += 1
            size += len(line)
    return MeasuredText(target, lines, counts.total(), size, digest.hexdigest(), counts)


def measure(path: Path) -> MeasuredText:
    """Return the statistics of a file."""
    with path.open("rb") as lines:
        return replace(copy_and_measure(lines, Path(os.devnull)), path=path)


def seen_lines(texts: Mapping[str, Path]) -> dict[str, float]:
    """Compute the percentage of the other splits' non-empty lines that also occur in train.

    Prints the percentages if there are such lines.
    """
    others = {split: Counter(_lines(path)) for split, path in texts.items() if split != "train"}
    known = {line for lines in others.values() for line in lines}
    seen = {line for line in _lines(texts["train"]) if line in known}
    shares = {
        split: round(100 * sum(lines[line] for line in seen) / max(lines.total(), 1), 4)
        for split, lines in others.items()
    }
    if seen:
        shown = ", ".join(f"{share:.3g}% of {split}" for split, share in shares.items())
        report(f"lines that also occur in train: {shown}")
    return shares


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from filter(None, map(bytes.strip, lines))


def sha256(path: Path) -> str:
    """Return the sha256 of a file as stored."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def unigram_perplexity(
    train: MeasuredText, text: MeasuredText, known: Collection[str]
) -> float | None:
    """Compute the perplexity of a text under the word frequencies of the training text.

    Words outside the dictionary count as one word, and line ends as words, as a model sees them.
    Counts of dictionary words are increased by one (add-one smoothing).

    Args:
        train: training text.
        text: text to predict, tokenized alike.
        known: words of the dictionary.

    Returns:
        Perplexity per word and line end; None for an empty text.
    """
    train_counts, text_counts = _counts(train, known), _counts(text, known)
    total = train_counts.total() + len({*known, _UNKNOWN, _END})
    if not text_counts.total():
        return None
    import numpy as np  # here, since the --help of data commands must not load it

    counts = np.array(list(text_counts.values()), dtype=float)
    logs = np.log([(train_counts[word] + 1) / total for word in text_counts])
    return float(np.exp(-np.average(logs, weights=counts)))


def _counts(text: MeasuredText, known: Collection[str]) -> Counter[str]:
    counts = Counter({_END: text.lines} if text.lines else {})
    for word, count in text.word_counts.items():
        counts[word if word in known else _UNKNOWN] += count
    return counts
