"""Windows and offsets: what a model is asked for is the answer, to the character."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.offsets import EncodedText, encode_with_offsets
from fairseq_plugins.squad.examples import Answer, Question
from fairseq_plugins.squad.features import (
    NO_ANSWER,
    Features,
    SpecialTokens,
    WindowSizes,
    make_windows,
    window_spans,
)
from tests.squad.conftest import random_text

SPECIALS = SpecialTokens(bos=-1, eos=-2)  # no id of a piece
SIZES = WindowSizes(max_length=32, stride=9, max_query_length=6)


def windows_of(
    encoder: Any, context: str, answer: Answer | None, sizes: WindowSizes = SIZES
) -> Any:
    """The windows of a question about the context, and the context's pieces."""
    pieces = encode_with_offsets(encoder, context)
    asked = encoder.encode("Who is it then?")
    found = Question("q", "", (answer,) if answer else ())
    return list(make_windows(found, asked, pieces, SPECIALS, sizes)), pieces


def test_pieces_are_the_encoders_own(encoder: Any) -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = random_text(rng, 20)
        pieces = encode_with_offsets(encoder, text)
        assert pieces.ids == encoder.encode(text)
        assert encoder.decode(pieces.ids) == text


def test_offsets_cover_every_character_but_joined_spaces(encoder: Any) -> None:
    """Offsets never go back, and what no piece touches is a space at the head of a word."""
    rng = random.Random(1)
    shared = 0
    for _ in range(200):
        text = random_text(rng, 20)
        pieces = encode_with_offsets(encoder, text)
        assert pieces.starts == sorted(pieces.starts)
        assert pieces.ends == sorted(pieces.ends)
        assert all(start < end for start, end in zip(pieces.starts, pieces.ends, strict=True))
        touched = {i for s, e in zip(pieces.starts, pieces.ends, strict=True) for i in range(s, e)}
        missing = set(range(len(text))) - touched
        assert all(text[i] == " " and not text[i + 1].isspace() for i in missing)
        shared += len(pieces.starts) - len(set(pieces.starts))
    assert shared > 1000  # characters of several pieces occurred


def random_answer(rng: random.Random, pieces: EncodedText) -> tuple[int, int]:
    """Characters that begin and end where pieces do; a piece of bytes may lie in two characters."""
    spans = list(zip(pieces.starts, pieces.ends, strict=True))

    def is_border(place: int) -> bool:
        return not any(start < place < end for start, end in spans)

    start = rng.choice([place for place in pieces.starts if is_border(place)])
    return start, rng.choice([place for place in pieces.ends if place > start and is_border(place)])


def test_a_thousand_windows_map_back(encoder: Any) -> None:
    """A span of words gives back exactly their characters, from every window that holds it."""
    rng = random.Random(3)
    windows_seen = 0
    while windows_seen < 1000:
        context = random_text(rng, rng.randint(5, 60))
        pieces = encode_with_offsets(encoder, context)
        start, end = random_answer(rng, pieces)
        answer = Answer(context[start:end], start)
        windows, _ = windows_of(encoder, context, answer)
        whole = 0
        for window in windows:
            windows_seen += 1
            if window.end == NO_ANSWER:
                continue
            whole += 1
            first, last = (
                window.first + place - window.context_at for place in (window.start, window.end)
            )
            assert context[pieces.starts[first] : pieces.ends[last]] == answer.text
        needed = pieces.cover(start, end)
        assert needed is not None
        inside = [w.first <= needed[0] and needed[1] < w.first + w.count for w in windows]
        assert whole == sum(inside)


def test_an_answer_that_ends_inside_a_piece_has_the_fewest_pieces(encoder: Any) -> None:
    rng = random.Random(4)
    inexact = 0
    for _ in range(500):
        context = random_text(rng, 12)
        start = rng.randrange(len(context) - 1)
        end = rng.randint(start + 1, len(context))
        pieces = encode_with_offsets(encoder, context)
        span = pieces.cover(start, end)
        if not context[start:end].strip():
            continue
        assert span is not None
        first, last = span
        text = context[pieces.starts[first] : pieces.ends[last]]
        assert context[start:end].strip() in text
        # Without either end a character of the answer would be lost.
        assert pieces.ends[first] > start and pieces.starts[last] < end
        assert first == 0 or pieces.ends[first - 1] <= start
        assert last + 1 == len(pieces) or pieces.starts[last + 1] >= end
        inexact += text != context[start:end]
    assert inexact > 50


def test_spaces_alone_are_no_answer(encoder: Any) -> None:
    context = "(so) the end."
    pieces = encode_with_offsets(encoder, context)
    assert (5, 8) in zip(pieces.starts, pieces.ends, strict=True)  # one piece: " the"
    assert pieces.cover(4, 5) is None
    assert pieces.cover(4, 8) == pieces.cover(5, 8)
    windows, _ = windows_of(encoder, context, Answer(" ", 4))
    assert [(w.start, w.end) for w in windows] == [(NO_ANSWER, NO_ANSWER)]


def test_a_window_is_laid_out_as_roberta_does(encoder: Any) -> None:
    (window,), pieces = windows_of(encoder, "the end.", Answer("end", 4))
    asked = encoder.encode("Who is it then?")[:6]
    assert window.tokens == [-1, *asked, -2, -2, *pieces.ids, -2]
    assert window.tokens[window.context_at] == pieces.ids[0]


def test_windows_cover_long_texts(encoder: Any) -> None:
    for pieces, room, stride in [(0, 5, 2), (5, 5, 2), (6, 5, 2), (100, 7, 3), (100, 7, 50)]:
        spans = list(window_spans(pieces, room, stride))
        assert {i for first, count in spans for i in range(first, first + count)} == set(
            range(pieces)
        )
        assert all(count <= room for _, count in spans)
        assert spans[-1][0] + spans[-1][1] == pieces
        starts = [first for first, _ in spans]
        assert starts == [i * min(stride, room) for i in range(len(spans))]


def test_cut_answers_are_no_answer(encoder: Any) -> None:
    """Of a long answer some window has a part, and those ask for <s>; none has more than fits."""
    rng = random.Random(5)
    context = random_text(rng, 60)
    pieces = encode_with_offsets(encoder, context)
    start, end = pieces.starts[10], pieces.ends[29]
    windows, _ = windows_of(encoder, context, Answer(context[start:end], start))
    parts = [w for w in windows if w.first < 30 and w.first + w.count > 10]
    whole = [w for w in parts if w.first <= 10 and w.first + w.count >= 30]
    assert len(parts) > len(whole) > 0
    for window in windows:
        place = (window.start, window.end)
        expected = (10, 29) if window in whole else None
        if expected is None:
            assert place == (NO_ANSWER, NO_ANSWER)
        else:
            shift = window.context_at - window.first
            assert place == (expected[0] + shift, expected[1] + shift)


def test_empty_text(encoder: Any) -> None:
    (window,), _ = windows_of(encoder, "", None)
    assert window.count == 0
    assert window.tokens[-3:] == [-2, -2, -2]
    assert (window.start, window.end) == (NO_ANSWER, NO_ANSWER)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((10, 1, 6), "--max-length must be at least 11 with --max-query-length 6, but is 10"),
        ((384, 0, 64), "--stride must be at least 1, but is 0"),
        ((384, 128, 0), "--max-query-length must be at least 1, but is 0"),
    ],
)
def test_sizes_without_room(sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        WindowSizes(*sizes)


def test_saved_and_loaded(encoder: Any, tmp_path: Path) -> None:
    texts = [encode_with_offsets(encoder, text) for text in ("the end.", "")]
    spans = [np.array([text.starts, text.ends], np.int32) for text in texts]
    features = Features.build([(0, 0, 3, 4, 5, 6)], spans)
    path = tmp_path / "f.npz"
    features.save(path)
    loaded = Features.load(path)
    for name, value in vars(features).items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
    assert features.piece_at[1] == features.piece_at[2] == len(features.piece_starts)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="is damaged"):
        Features.load(path)
    with pytest.raises(DataError, match=r"is missing; scripts/prepare_squad\.sh"):
        Features.load(tmp_path / "none.npz")
