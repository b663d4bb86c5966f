"""Answers that need no model."""

import pytest

from fairseq_plugins.squad.baselines import closest_sentence, score_baselines, whole_text
from fairseq_plugins.squad.examples import Answer, Paragraph, Question, SquadFile

TEXT = "Rivers run to the sea. The old mill stands by the river! Who built it is not known."


def squad(version, *asked):
    questions = [
        Question(str(i), text, tuple(Answer(a, TEXT.index(a)) for a in answers))
        for i, (text, answers) in enumerate(asked)
    ]
    return SquadFile(version, (Paragraph(TEXT, tuple(questions)),), b"")


def test_the_closest_sentence_shares_most_words_and_is_the_first_of_several():
    assert (
        closest_sentence(TEXT, "Where does the mill stand?") == "The old mill stands by the river!"
    )
    assert closest_sentence(TEXT, "Who, if known, built it?") == "Who built it is not known."
    assert closest_sentence(TEXT, "Why?") == "Rivers run to the sea."
    assert whole_text(TEXT, "Why?") == TEXT


def test_floors_are_scored_as_predictions_are():
    found = score_baselines(squad("1.1", ("Where does the mill stand?", ["by the river"])))
    sentence = found["the sentence closest to the question"]
    # "by river" of "old mill stands by river": precision 2/5, recall 1
    assert sentence == {"exact": 0.0, "f1": pytest.approx(100 * 4 / 7, abs=1e-3)}
    assert 0 < found["the whole text"]["f1"] < sentence["f1"]
    exact = score_baselines(squad("1.1", ("Where is the sea?", ["Rivers run to the sea."])))
    assert exact["the sentence closest to the question"] == {"exact": 100.0, "f1": 100.0}


def test_what_has_no_answer_is_answered_wrongly():
    found = score_baselines(squad("2.0", ("Where is the sea?", [])))
    assert {score for one in found.values() for score in one.values()} == {0.0}
