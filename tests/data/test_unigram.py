"""Perplexity of words' frequencies, against the definition worked out by hand."""

from collections import Counter

import pytest

from fairseq_plugins.data.measure import MeasuredText, unigram_perplexity


def measured(tmp_path, *lines):
    counts = Counter(word for line in lines for word in line.split())
    return MeasuredText(tmp_path, len(lines), sum(counts.values()), 0, "", counts)


def test_every_word_and_end_of_line_counts(tmp_path):
    """Probabilities of a, b, end, <unk> from 3, 1, 2, 0 occurrences and one more of each."""
    train = measured(tmp_path, "a a b", "a")
    text = measured(tmp_path, "a c")  # c is unknown
    expected = ((4 / 10) * (1 / 10) * (3 / 10)) ** (-1 / 3)
    assert unigram_perplexity(train, text, {"a", "b"}) == pytest.approx(expected)


def test_it_is_the_number_of_words_where_all_are_equally_frequent(tmp_path):
    words = [f"w{i}" for i in range(50)]
    train = measured(tmp_path, *(" ".join(words) for _ in range(1000)))
    found = unigram_perplexity(train, train, set(words))
    assert found == pytest.approx(51, rel=1e-3)  # and the end of line
    assert unigram_perplexity(train, measured(tmp_path), set(words)) is None
