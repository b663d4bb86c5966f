"""Baselines of SQuAD without a model."""

import re
from collections.abc import Callable

from fairseq_plugins.squad.examples import SquadFile
from fairseq_plugins.squad.metrics import evaluate, normalise

_END = re.compile(r"(?<=[.!?])\s+")  # of a sentence

Answer = Callable[[str, str], str]  # from a text and a question


def whole_text(context: str, question: str) -> str:
    """Answer with the whole text."""
    return context


def closest_sentence(context: str, question: str) -> str:
    """Answer with the (first) sentence that shares most words with the question."""
    words = set(normalise(question).split())
    return max(_END.split(context), key=lambda one: len(words.intersection(normalise(one).split())))


PREDICTORS: dict[str, Answer] = {
    "the whole text": whole_text,
    "the sentence closest to the question": closest_sentence,
}


def score_baselines(squad: SquadFile) -> dict[str, dict[str, float]]:
    """Compute exact match and F1 by predictor, in per cent."""
    found = {}
    for name, answer in PREDICTORS.items():
        answers = {
            question.id: answer(paragraph.context, question.text)
            for paragraph in squad.paragraphs
            for question in paragraph.questions
        }
        scores = evaluate(squad.questions, answers, squad.version)
        found[name] = {key: round(scores[key], 4) for key in ("exact", "f1")}
    return found
