"""Baselines of GLUE tasks without a pre-trained model."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scipy.sparse import hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from fairseq_plugins.glue.metrics import score
from fairseq_plugins.glue.read import Example, SplitText
from fairseq_plugins.glue.tasks import GlueTask

MAJORITY, BAG = "majority class", "bag of words"
SECOND, SHARED = "bag of words, second sentence", "shared words"  # for sentence pairs

Features = Callable[[Sequence[Example]], Any]  # a row for each example


def score_baselines(
    task: GlueTask, splits: Mapping[str, SplitText]
) -> dict[str, dict[str, dict[str, float]]]:
    """Fit predictors to the training examples and score them on each other labelled split.

    The majority class (for numbers: their mean) ignores the sentences; the bag of words is a
    logistic regression (for numbers: a ridge regression) on word counts of each sentence. Sentence
    pairs have two more: a bag of words of the second sentence alone, since first sentences that
    repeat with different labels mislead, and a regression on the share of common words.

    Returns:
        The task's metrics in per cent by split and predictor, without splits of one example.
    """
    if task.labels.is_number:
        majority, regression = DummyRegressor(), Ridge()
    else:
        majority = DummyClassifier(strategy="prior")
        regression = LogisticRegression(max_iter=300)
    train = splits["train"].examples
    others = _measured(task, splits)
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in others}
    for predictor, features in _predictors(task, train):
        model = majority if predictor == MAJORITY else regression
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features(train), _targets(task, train))
        for name, examples in others.items():
            predictions = list(model.predict(features(examples)))
            scores = score(task, _targets(task, examples), predictions)
            found[name][predictor] = {metric: round(v, 4) for metric, v in scores.items()}
    return found


def seen_first_sentences(task: GlueTask, splits: Mapping[str, SplitText]) -> dict[str, float]:
    """Compute the percentage of each labelled split's first sentences that are in training too.

    Empty for tasks of one sentence.
    """
    if task.inputs < 2:
        return {}
    seen = {example.sentences[0] for example in splits["train"].examples}
    return {
        name: round(100 * sum(e.sentences[0] in seen for e in examples) / len(examples), 4)
        for name, examples in _measured(task, splits).items()
    }


def _measured(task: GlueTask, splits: Mapping[str, SplitText]) -> dict[str, tuple[Example, ...]]:
    return {
        name: split.examples
        for name, split in splits.items()
        if name != "train" and task.split(name).label and len(split.examples) > 1
    }


def _predictors(task: GlueTask, train: Sequence[Example]) -> Iterator[tuple[str, Features]]:
    """Yield names and features of the predictors; bags of words only if there are words."""
    yield MAJORITY, lambda examples: [[0.0]] * len(examples)
    if bag := _bag(train, range(task.inputs)):
        yield BAG, bag
    if task.inputs < 2:
        return
    if bag := _bag(train, (1,)):
        yield SECOND, bag
    yield SHARED, _shared


def _bag(train: Sequence[Example], sentences: Sequence[int]) -> Features | None:
    """Make word counts of the given sentences; None if training has no word."""
    vectorizers = {i: CountVectorizer() for i in sentences}
    try:
        for i, vectorizer in vectorizers.items():
            vectorizer.fit(example.sentences[i] for example in train)
    except ValueError:  # empty vocabulary
        return None

    def features(examples: Sequence[Example]) -> Any:
        counts = [v.transform(e.sentences[i] for e in examples) for i, v in vectorizers.items()]
        return hstack(counts).tocsr()

    return features


def _shared(examples: Sequence[Example]) -> list[list[float]]:
    """Compute the share of each sentence's words that the other has too."""
    words = CountVectorizer().build_analyzer()
    found = []
    for example in examples:
        first, second = (words(sentence) for sentence in example.sentences)
        found.append([_share(first, second), _share(second, first)])
    return found


def _share(words: Sequence[str], others: Sequence[str]) -> float:
    known = set(others)
    return sum(word in known for word in words) / len(words) if words else 0.0


def _targets(task: GlueTask, examples: Sequence[Example]) -> list[Any]:
    labels = [example.label or "" for example in examples]
    return [float(label) for label in labels] if task.labels.is_number else labels
