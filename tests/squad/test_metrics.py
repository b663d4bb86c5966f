"""Exact match and F1: cases worked out by hand, and files that are all right or all empty."""

import pytest

from fairseq_plugins.squad.examples import Answer, Question
from fairseq_plugins.squad.metrics import evaluate, exact_match, f1, normalise


def asked(name: str, *golds: str) -> Question:
    return Question(name, "?", tuple(Answer(gold, 0) for gold in golds))


QUESTIONS = [
    asked("one", "Denver Broncos", "the Denver Broncos!"),
    asked("two", "a red, red rose"),
    asked("three", "1,000"),
    asked("none"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Denver-Broncos, ", "denverbroncos"),
        ("a theatre of An Other", "theatre of other"),
        ("the", ""),
        ("A-ha", "aha"),
        ("\u201cquoted\u201d", "\u201cquoted\u201d"),  # ASCII punctuation alone is dropped
        ("the\u00a0end", "end"),
        ("U.S.", "us"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("red rose", "a red, red rose", 0.8),  # 2 in common of 2 and 3
        ("red red red", "red rose", 0.4),  # 1 in common of 3 and 2
        ("the Broncos", "Denver Broncos", 2 / 3),
        ("blue", "red", 0.0),
        ("The red rose", "red rose.", 1.0),
    ],
)
def test_f1(prediction: str, gold: str, expected: float) -> None:
    assert f1(prediction, gold) == pytest.approx(expected)
    assert f1(gold, prediction) == pytest.approx(expected)
    assert (exact_match(prediction, gold) == 1.0) == (expected == 1.0)


def test_texts_of_which_nothing_is_left() -> None:
    """v2.0 compares them as wholes; by v1.1's formula they have no words in common."""
    assert (f1("the", "a", "2.0"), f1("the", "a", "1.1")) == (1.0, 0.0)
    assert (f1("", "rose", "2.0"), f1("", "rose", "1.1")) == (0.0, 0.0)
    question = asked("q", "the", "rose")
    assert evaluate([question], {"q": "the"}, "1.1")["exact"] == 100.0
    assert evaluate([question], {"q": "the"}, "2.0")["exact"] == 0.0  # "the" is no answer there


def test_the_best_gold_answer_counts() -> None:
    result = evaluate(QUESTIONS[:1], {"one": "Broncos of Denver"}, "1.1")
    assert result == {"exact": 0.0, "f1": pytest.approx(80.0), "total": 1, "missing": 0}
    several = asked("q", "blue", "the red rose", "rose")
    assert evaluate([several], {"q": "red rose"}, "1.1")["exact"] == 100.0
    # The best F1 and the best exact match may come from different answers.
    assert evaluate([several], {"q": "red"}, "1.1")["f1"] == pytest.approx(200 / 3)


def test_perfect_predictions() -> None:
    perfect = {q.id: q.answers[0].text if q.answers else "" for q in QUESTIONS}
    expected = {"exact": 100.0, "f1": 100.0, "total": 4, "missing": 0}
    for half, total in (("HasAns", 3), ("NoAns", 1)):
        expected |= {f"{half}_exact": 100.0, f"{half}_f1": 100.0, f"{half}_total": total}
    assert evaluate(QUESTIONS, perfect, "2.0") == expected
    first = {"exact": 100.0, "f1": 100.0, "total": 3, "missing": 0}
    assert evaluate(QUESTIONS[:3], perfect, "1.1") == first


def test_empty_predictions() -> None:
    """Empty texts are right where there is no answer; no prediction at all is never right."""
    result = evaluate(QUESTIONS, dict.fromkeys(("one", "two", "three", "none"), ""), "2.0")
    assert (result["exact"], result["f1"]) == (25.0, 25.0)
    assert (result["HasAns_exact"], result["NoAns_exact"]) == (0.0, 100.0)
    result = evaluate(QUESTIONS, {}, "2.0")
    assert (result["exact"], result["f1"], result["missing"]) == (0.0, 0.0, 4)
    assert evaluate(QUESTIONS[:3], {}, "1.1")["exact"] == 0.0


def test_best_threshold() -> None:
    """Answering the two surest questions is best: one right, one impossible kept empty."""
    predictions = {"one": "denver broncos", "two": "blue", "three": "1000", "none": "rose"}
    no_answer = {"one": 0.1, "two": 0.9, "none": 0.5, "three": 0.2}
    result = evaluate(QUESTIONS, predictions, "2.0", no_answer)
    # Up to 0.2: "one", "three" and the unanswered "none" are right. At 0.5 "none" is wrong.
    assert (result["exact"], result["best_exact"]) == (50.0, 75.0)
    assert result["best_exact_thresh"] == 0.2
    # Where nothing is gained, every question is left without an answer.
    hopeless = evaluate(QUESTIONS, dict.fromkeys(predictions, "blue"), "2.0", no_answer)
    assert (hopeless["best_exact"], hopeless["best_exact_thresh"]) == (25.0, 0.0)
