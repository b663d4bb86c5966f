"""Merges that are learned: those of subword-nmt, tie by tie, whatever the text."""

import io
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt import learn_bpe as subword_nmt

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.merges import count_words, learn_merges, write_codes

# Few letters, so that symbols come about in several ways; white space that splits no words.
WORDS = st.text(alphabet="aab\u00a0\\<", min_size=1, max_size=9)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(subword_nmt, "tqdm", lambda items: items)


def theirs(counts, merges):
    written = io.StringIO()
    words = [f"{word} {count}" for word, count in counts.items()]
    subword_nmt.learn_bpe(words, written, merges, is_dict=True)
    return written.getvalue()


def ours(counts, merges, tmp_path):
    write_codes(tmp_path / "codes", counts, merges)
    return (tmp_path / "codes").read_bytes().decode()


def text_like(words, seed, letters="enisratdhulcgmobwfkzv"):
    """Counted words as of a text: few are frequent, most occur once, common letters more often."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(letters))]
    stems = ["".join(rng.choices(letters, weights, k=rng.randint(1, 4))) for _ in range(words // 4)]
    found = Counter()
    for rank in range(words):
        word = "".join(rng.choices(stems, k=rng.randint(1, 3)))
        found[word] += max(1, words // (rank + 1))
    return found


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(WORDS, st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 300))
def test_any_words(counts, merges):
    if any(len(word) > 1 for word in counts):
        expected = theirs(counts, merges).splitlines(keepends=True)[1:]
        assert [f"{a} {b}\n" for a, b in learn_merges(counts, merges)] == expected


@pytest.mark.parametrize(("words", "merges"), [(600, 400), (2500, 1500)])
def test_words_as_of_a_text(words, merges, tmp_path):
    """Many sweeps of rare pairs, and many ties."""
    counts = text_like(words, seed=words)
    assert ours(counts, merges, tmp_path) == theirs(counts, merges)


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["enisratdhulcgmobwfkzv", "ab"])
def test_a_long_text(letters, tmp_path):
    counts = text_like(30_000, seed=3, letters=letters)
    assert ours(counts, 12_000, tmp_path) == theirs(counts, 12_000)


def test_no_pair_that_stands_once_is_merged(tmp_path):
    assert ours({"abc": 1, "de": 2, "fg": 1}, 9, tmp_path) == "#version: 0.2\nd e</w>\n"


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "has no words"),
        ({"a": 5, "b": 2}, "no pair of characters occurs 2 times"),
        ({"ab": 1}, "no pair of characters occurs 2 times"),
    ],
)
def test_where_nothing_can_be_learned_nothing_is_written(counts, message, tmp_path):
    with pytest.raises(DataError, match=message):
        write_codes(tmp_path / "codes", counts, 5)
    assert not list(tmp_path.iterdir())


def test_words_are_counted_as_subword_nmt_counts_them():
    lines = ["the  cat\n", " the\u00a0hat the\r\n", "\n", "cat"]
    assert count_words(lines) == subword_nmt.get_vocabulary(lines)
