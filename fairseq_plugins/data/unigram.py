"""How well the frequencies of words alone predict a text: what needs no model."""

from collections.abc import Collection

from fairseq_plugins.data.measure import MeasuredText

UNKNOWN, END = "<unk>", "</s>"


def unigram_perplexity(
    train: MeasuredText, text: MeasuredText, known: Collection[str]
) -> float | None:
    """Perplexity of a text under the frequencies of the training text.

    Words that a dictionary does not have count as one, and ends of lines as words, as a model sees
    them. Each of the dictionary's words is counted once more than it occurs, so that none is
    impossible.

    Args:
        train: where words are counted.
        text: what is predicted, in the same words.
        known: the dictionary's words.

    Returns:
        The perplexity per word and end of line; None for an empty text.
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
