"""Baselines of SQuAD without any model."""

import re
from collections.abc import Callable

from fairseq_plugins.squad.examples import SquadFile
from fairseq_plugins.squad.metrics import evaluate, normalise

_END = re.compile(r"(?<=[.!?])\s+")  # of a sentence

Answer = Callable[[str, str], str]  # of a text and a question


def whole_text(context: str, question: str) -> str:
    """Answer with the whole text: every wanted word is in it, and all others too."""
    return context


def closest_sentence(context: str, question: str) -> str:
    """The sentence that has most of the question's words, the first of several."""
    asked = set(normalise(question).split())
    return max(_END.split(context), key=lambda one: len(asked.intersection(normalise(one).split())))


PREDICTORS: dict[str, Answer] = {
    "the whole text": whole_text,
    "the sentence closest to the question": closest_sentence,
}


def floors(squad: SquadFile) -> dict[str, dict[str, float]]:
    """Return exact match and F1 by predictor, in per cent."""
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
