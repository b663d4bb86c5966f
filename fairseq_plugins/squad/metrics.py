"""Exact match and F1 as SQuAD defines them (Rajpurkar et al. 2016, Sec. 6.1; 2018, Sec. 5).

Texts are compared lower-cased, without punctuation, without the articles a, an and the, and with
single spaces. F1 is that of the words two texts have in common, counted with repetition. Both are
taken against every gold answer, and the best counts. The answer to an impossible question is the
empty text.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairseq_plugins.squad.examples import Question

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Scores = dict[str, float]


def normalise(text: str) -> str:
    """Return the words of a text that are compared."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, gold: str) -> float:
    """1 where both are the same once normalised, else 0."""
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str, version: str = "2.0") -> float:
    """Harmonic mean of precision and recall over words, in [0, 1].

    Where a text has no words left, v2.0 compares both as wholes and v1.1 gives 0.
    """
    predicted, wanted = normalise(prediction).split(), normalise(gold).split()
    if not (predicted and wanted):
        return float(version == "2.0" and predicted == wanted)
    common = (Counter(predicted) & Counter(wanted)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def gold_texts(question: Question, version: str) -> Sequence[str]:
    """Return the accepted answers; v2.0 drops those that normalisation leaves empty."""
    texts = [answer.text for answer in question.answers]
    if version == "2.0":
        return [text for text in texts if normalise(text)] or [""]
    return texts


def score(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> tuple[Scores, Scores]:
    """Exact match and F1 of each question in [0, 1]; one without a prediction has 0 in both."""
    exact, overlap = {}, {}
    for question in questions:
        prediction = predictions.get(question.id)
        golds = gold_texts(question, version) if prediction is not None else ()
        text = prediction or ""
        exact[question.id] = max((exact_match(text, gold) for gold in golds), default=0.0)
        overlap[question.id] = max((f1(text, gold, version) for gold in golds), default=0.0)
    return exact, overlap


def best_threshold(
    scores: Scores, no_answer: Mapping[str, float], questions: Sequence[Question], empty: set[str]
) -> tuple[float, float]:
    """(best mean in per cent, threshold): answers whose no-answer probability is above are dropped.

    Args:
        scores: of each question where its prediction is kept, in [0, 1].
        no_answer: probability that a question has no answer.
        questions: all of them.
        empty: ids of those whose prediction is the empty text already.

    Raises a threshold from 0 over the probabilities, as the official search does: a question
    counts as answered from its own probability on.
    """
    impossible = {question.id for question in questions if not question.answers}
    current = best = float(len(impossible))
    threshold = 0.0
    for name in sorted((question.id for question in questions), key=lambda q: no_answer[q]):
        if name not in impossible:
            current += scores[name]
        elif name not in empty:
            current -= 1.0
        if current > best:
            best, threshold = current, no_answer[name]
    return 100.0 * best / len(questions), threshold


def evaluate(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    version: str,
    no_answer: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The official numbers in per cent: exact, f1 and total, and for v2.0 those of both halves.

    Args:
        questions: of the data set; every one counts, and `missing` says how many had no prediction.
        predictions: id -> text.
        version: of the data set.
        no_answer: id -> probability of there being no answer, for v2.0; adds the best numbers that
            a threshold on it could give.
    """
    exact, overlap = score(questions, predictions, version)
    ids = [question.id for question in questions]
    result: dict[str, Any] = _means(exact, overlap, ids)
    result["missing"] = sum(name not in predictions for name in ids)
    if version == "2.0":
        halves: tuple[tuple[str, Callable[[Question], bool]], ...] = (
            ("HasAns", lambda question: bool(question.answers)),
            ("NoAns", lambda question: not question.answers),
        )
        for prefix, belongs in halves:
            half = [question.id for question in questions if belongs(question)]
            if half:
                named = _means(exact, overlap, half)
                result |= {f"{prefix}_{key}": value for key, value in named.items()}
    if no_answer is not None:
        empty = {name for name in ids if not predictions.get(name)}
        for key, scores in (("exact", exact), ("f1", overlap)):
            best, threshold = best_threshold(scores, no_answer, questions, empty)
            result |= {f"best_{key}": best, f"best_{key}_thresh": threshold}
    return result


def _means(exact: Scores, overlap: Scores, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "exact": 100.0 * sum(exact[name] for name in ids) / len(ids),
        "f1": 100.0 * sum(overlap[name] for name in ids) / len(ids),
        "total": len(ids),
    }
