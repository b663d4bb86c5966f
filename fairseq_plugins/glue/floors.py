"""What a task's development set gives without any pre-trained model."""

import warnings
from collections.abc import Mapping, Sequence
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


def floors(
    task: GlueTask, splits: Mapping[str, SplitText]
) -> dict[str, dict[str, dict[str, float]]]:
    """Two predictors fitted to the training examples and scored on each labelled other split.

    The majority class (of numbers: their mean) knows no sentence; the bag of words is a logistic
    regression (of numbers: a ridge regression) of how often each word is in each sentence.

    Returns:
        By split and predictor the task's metrics in per cent; splits of one example are left out.
    """
    train = splits["train"].examples
    others = {
        name: split.examples
        for name, split in splits.items()
        if name != "train" and task.split(name).label and len(split.examples) > 1
    }
    vectorizers = [CountVectorizer() for _ in range(task.inputs)]
    try:
        for i, vectorizer in enumerate(vectorizers):
            vectorizer.fit(example.sentences[i] for example in train)
    except ValueError:  # not a word in the training sentences
        vectorizers = []
    predictors = {MAJORITY: _majority(task)}
    if vectorizers:
        predictors[BAG] = _regression(task)
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in others}
    for predictor, model in predictors.items():
        words = vectorizers if predictor == BAG else []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(_features(train, words), _targets(task, train))
        for name, examples in others.items():
            predictions = list(model.predict(_features(examples, words)))
            scores = score(task, _targets(task, examples), predictions)
            found[name][predictor] = {metric: round(v, 4) for metric, v in scores.items()}
    return found


def _majority(task: GlueTask) -> Any:
    return DummyRegressor() if task.labels.is_number else DummyClassifier(strategy="prior")


def _regression(task: GlueTask) -> Any:
    return Ridge() if task.labels.is_number else LogisticRegression(max_iter=300)


def _targets(task: GlueTask, examples: Sequence[Example]) -> list[Any]:
    labels = [example.label or "" for example in examples]
    return [float(label) for label in labels] if task.labels.is_number else labels


def _features(examples: Sequence[Example], vectorizers: Sequence[CountVectorizer]) -> Any:
    if not vectorizers:
        return [[0.0]] * len(examples)
    return hstack(
        [
            vectorizer.transform(example.sentences[i] for example in examples)
            for i, vectorizer in enumerate(vectorizers)
        ]
    ).tocsr()
