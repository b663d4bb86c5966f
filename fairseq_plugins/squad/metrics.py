"""Exact match and F1 as SQuAD defines them (Rajpurkar et al. 2016, Sec. 6.1; 2018, Sec. 5).

Texts are compared lower-cased, without punctuation and articles, with single spaces. F1 is over the
bag of words. The best score over all gold answers counts. The answer to an impossible question is
the empty text.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command's --help must not
    from fairseq_plugins.squad.examples import Question

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Scores = dict[str, float]


def normalise(text: str) -> str:
    """Normalise a text for comparison."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both texts are equal once normalised, else 0."""
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str, version: str = "2.0") -> float:
    """Compute the harmonic mean of precision and recall over words, in [0, 1].

    If a text has no word left, v2.0 gives 1 for two such texts, v1.1 gives 0.
    """
    predicted, wanted = normalise(prediction).split(), normalise(gold).split()
    if not (predicted and wanted):
        return float(version == "2.0" and predicted == wanted)
    common = (Counter(predicted) & Counter(wanted)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def gold_texts(question: "Question", version: str) -> Sequence[str]:
    """Return the accepted answers; v2.0 drops those that are empty once normalised."""
    texts = [answer.text for answer in question.answers]
    if version == "2.0":
        return [text for text in texts if normalise(text)] or [""]
    return texts


def score(
    questions: Sequence["Question"], predictions: Mapping[str, str], version: str
) -> tuple[Scores, Scores]:
    """Compute exact match and F1 of each question in [0, 1]; both 0 without a prediction."""
    exact, overlap = {}, {}
    for question in questions:
        prediction = predictions.get(question.id)
        golds = gold_texts(question, version) if prediction is not None else ()
        text = prediction or ""
        exact[question.id] = max((exact_match(text, gold) for gold in golds), default=0.0)
        overlap[question.id] = max((f1(text, gold, version) for gold in golds), default=0.0)
    return exact, overlap


def best_threshold(
    scores: Scores, no_answer: Mapping[str, float], questions: Sequence["Question"], empty: set[str]
) -> tuple[float, float]:
    """Find the threshold on the no-answer probability with the best mean score.

    As in the official search, the threshold goes up from 0 over the probabilities; a question is
    answered if its own probability is at most the threshold.

    Args:
        scores: each question's score when answered, in [0, 1].
        no_answer: probability that a question has no answer.
        questions: all questions.
        empty: ids of questions whose prediction is empty.

    Returns:
        The best mean in per cent, and its threshold.
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
    questions: Sequence["Question"],
    predictions: Mapping[str, str],
    version: str,
    no_answer: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Compute the official scores in per cent, for v2.0 also with and without answer.

    Args:
        questions: all questions; `missing` in the result counts those without a prediction.
        predictions: texts by id.
        version: version of the data set.
        no_answer: probability of no answer by id, for v2.0; adds the best scores over thresholds.
    """
    exact, overlap = score(questions, predictions, version)
    ids = [question.id for question in questions]
    result: dict[str, Any] = _means(exact, overlap, ids)
    result["missing"] = sum(name not in predictions for name in ids)
    if version == "2.0":
        for prefix, is_answered in (("HasAns", True), ("NoAns", False)):
            if half := [q.id for q in questions if bool(q.answers) == is_answered]:
                means = _means(exact, overlap, half)
                result |= {f"{prefix}_{key}": value for key, value in means.items()}
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
