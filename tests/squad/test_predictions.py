"""From scores to texts."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.squad.features import window_spans
from fairseq_plugins.squad.predictions import (
    Prediction,
    SearchOptions,
    Span,
    best_pairs,
    most_context,
    predict_question,
)

CONTEXT = "one two three four five six"
OFFSETS = (
    np.array([0, 4, 8, 14, 19, 24], np.int32),
    np.array([3, 7, 13, 18, 23, 27], np.int32),
)


def logits(length: int, **scores: dict[int, float]) -> Any:
    """(T, 2), 0 but for these tokens' scores as first and last one."""
    found = np.zeros((length, 2), np.float32)
    for column, name in enumerate(("start", "end")):
        for token, value in scores[name].items():
            found[token, column] = value
    return found


def predict(windows: Any, scores: Any, **options: Any) -> Prediction:
    return predict_question(CONTEXT, OFFSETS, windows, scores, SearchOptions(**options))


def test_a_span_is_the_exact_text() -> None:
    found = predict([(0, 6, 3)], [logits(10, start={4: 5.0, 3: 1.0}, end={6: 4.0})])
    assert found.text() == "two three four"
    assert found.spans[0] == Span("two three four", 4, 18, 9.0)
    assert found.null_score == 0.0


def test_question_and_null_are_no_answers() -> None:
    """However high the scores of <s>, the question and the last </s> are."""
    high = {0: 50.0, 1: 50.0, 9: 50.0}
    found = predict([(0, 6, 3)], [logits(10, start={**high, 5: 2.0}, end={**high, 5: 2.0})])
    assert found.text() == "three"
    assert found.null_score == 100.0
    assert found.text(null_threshold=0.0) == ""
    assert found.text(null_threshold=96.0) == "three"  # 100 - 4 is not more than the threshold
    assert found.text(null_threshold=95.9) == ""


def test_null_is_the_lowest_of_the_windows() -> None:
    first = logits(8, start={0: 3.0}, end={0: 3.0})
    second = logits(8, start={0: 1.0}, end={0: 1.5})
    assert predict([(0, 4, 3), (2, 4, 3)], [first, second]).null_score == 2.5


def test_long_and_reversed_spans_are_left_out() -> None:
    scores = logits(10, start={3: 5.0, 7: 4.0}, end={8: 5.0, 6: 4.0})
    assert predict([(0, 6, 3)], [scores]).text() == "one two three four five six"
    assert predict([(0, 6, 3)], [scores], max_answer_length=5).text() == "one two three four"
    assert predict([(0, 6, 3)], [scores], max_answer_length=3).text() == "five six"


def test_best_pairs_are_all_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        start, end = rng.normal(size=(2, 9)).astype(np.float32)
        may_start = rng.random(9) < 0.7
        options = SearchOptions(n_best=9, max_answer_length=4)
        found = {(i, j): value for i, j, value in best_pairs(start, end, may_start, options)}
        expected = {
            (i, j): float(start[i]) + float(end[j])
            for i, j in itertools.product(range(9), repeat=2)
            if may_start[i] and i <= j < i + 4
        }
        assert found == expected


def test_each_piece_belongs_to_the_window_with_most_context() -> None:
    rng = random.Random(0)
    for _ in range(50):
        windows = list(window_spans(rng.randint(1, 60), rng.randint(1, 20), rng.randint(1, 20)))
        owners = [
            {first + int(i) for i in np.flatnonzero(most_context(windows, w))}
            for w, (first, _) in enumerate(windows)
        ]
        total = windows[-1][0] + windows[-1][1]
        assert sorted(itertools.chain(*owners)) == list(range(total))  # each piece once
    assert list(np.flatnonzero(most_context([(0, 10), (4, 10)], 0))) == [0, 1, 2, 3, 4, 5, 6]


def test_a_cut_context_does_not_win() -> None:
    """A piece at a window's border is answered from the window that has it in its middle."""
    windows = [(0, 4, 1), (2, 4, 1)]
    scores = [
        logits(6, start={4: 9.0}, end={4: 9.0}),  # "four", last of the first window
        logits(6, start={1: 1.0}, end={1: 1.0}),
    ]
    assert all(span.text != "four" or span.score < 9 for span in predict(windows, scores).spans)


def test_empty_text() -> None:
    found = predict_question(
        "", (OFFSETS[0][:0], OFFSETS[1][:0]), [(0, 0, 3)], [np.ones((4, 2))], SearchOptions()
    )
    assert found.text() == "" and found.spans == ()
    assert found.no_answer_probability() == 1.0


def test_probabilities() -> None:
    spans = (Span("a", 0, 1, 3.0), Span("b", 1, 2, 3.0), Span("c", 2, 3, -math.inf))
    found = Prediction(spans, 3.0)
    assert found.probabilities() == [0.5, 0.5, 0.0]
    assert found.no_answer_probability() == 0.5
    assert Prediction(spans, 3000.0).no_answer_probability() == 1.0
    assert Prediction(spans, -3000.0).no_answer_probability() == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 0}, "--n-best must be at least 1, but is 0"),
        ({"max_answer_length": 0}, "--max-answer-length must be at least 1"),
        ({"null_threshold": math.nan}, "--null-threshold must be a number"),
    ],
)
def test_wrong_options(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SearchOptions(**options)
