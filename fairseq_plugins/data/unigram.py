"""Unigram baseline: perplexity of a text under word frequencies."""

from collections import Counter
from collections.abc import Collection

from fairseq_plugins.data.measure import MeasuredText

UNKNOWN, END = "<unk>", "</s>"


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
    total = train_counts.total() + len({*known, UNKNOWN, END})
    if not text_counts.total():
        return None
    import numpy as np  # here, since the --help of data commands must not load it

    counts = np.array(list(text_counts.values()), dtype=float)
    logs = np.log([(train_counts[word] + 1) / total for word in text_counts])
    return float(np.exp(-np.average(logs, weights=counts)))


def _counts(text: MeasuredText, known: Collection[str]) -> Counter[str]:
    counts = Counter({END: text.lines} if text.lines else {})
    for word, count in text.word_counts.items():
        counts[word if word in known else UNKNOWN] += count
    return counts
