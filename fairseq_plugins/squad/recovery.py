"""Answers read back from features: the most that a model which finds every span can reach."""

from collections.abc import Iterator

import numpy as np

from fairseq_plugins.squad.examples import Question, SquadFile
from fairseq_plugins.squad.features import NO_ANSWER, Features
from fairseq_plugins.squad.metrics import exact_match


def recovered_answers(squad: SquadFile, features: Features) -> Iterator[tuple[Question, list[str]]]:
    """(question, text of the span that each window with an answer asks for), in the file's order.

    A span is made of whole pieces, so it is the answer itself but for answers that end inside a
    piece, as "1990" in "1990s".
    """
    windows_at = np.searchsorted(features.question, np.arange(len(squad.questions) + 1))
    number = 0
    for text, paragraph in enumerate(squad.paragraphs):
        at = features.piece_at[text]
        for question in paragraph.questions:
            found = []
            for w in range(windows_at[number], windows_at[number + 1]):
                if features.end[w] != NO_ANSWER:
                    shift = at + features.first[w] - features.context_at[w]
                    start = features.piece_starts[features.start[w] + shift]
                    end = features.piece_ends[features.end[w] + shift]
                    found.append(paragraph.context[start:end])
            yield question, found
            number += 1


def count_recovered(squad: SquadFile, features: Features) -> dict[str, int]:
    """Count questions with an answer, and those whose answer the windows give back.

    Counted are those with an answer in a window, and of these the ones that are the answer to the
    character, or once normalised, as exact match compares.
    """
    counts = {"questions": 0, "in_a_window": 0, "exact": 0, "normalised": 0}
    for question, found in recovered_answers(squad, features):
        if not question.answers:
            continue
        counts["questions"] += 1
        if found:
            gold = question.answers[0].text
            counts["in_a_window"] += 1
            counts["exact"] += found[0] == gold
            counts["normalised"] += bool(exact_match(found[0], gold))
    return counts
