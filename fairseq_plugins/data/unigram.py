"""Unigram baseline: perplexity of a text under word frequencies."""

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
    seen, asked = _counts(train, known), _counts(text, known)
    words = {*known, UNKNOWN, END}
    total = sum(seen.values()) + len(words)
    if not asked or not sum(asked.values()):
        return None
    import numpy as np  # which --help of what prepares must not load

    counts = np.array(list(asked.values()), dtype=float)
    logs = np.log([(seen.get(word, 0) + 1) / total for word in asked])
    return float(np.exp(-np.average(logs, weights=counts)))


def _counts(text: MeasuredText, known: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {END: text.lines} if text.lines else {}
    for word, count in text.word_counts.items():
        name = word if word in known else UNKNOWN
        found[name] = found.get(name, 0) + count
    return found
