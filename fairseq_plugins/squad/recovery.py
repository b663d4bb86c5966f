"""Answers read back from features: the scores of a model that finds every span."""

from collections.abc import Iterator

from fairseq_plugins.squad.examples import Question, SquadFile
from fairseq_plugins.squad.features import NO_ANSWER, Features
from fairseq_plugins.squad.metrics import exact_match


def recovered_answers(squad: SquadFile, features: Features) -> Iterator[tuple[Question, list[str]]]:
    """Yield each question with the target texts of its windows, in the file's order.

    A text differs from the answer only if the answer ends inside a subword, as "1990" in "1990s".
    """
    for question, context, subwords, rows in features.questions(squad):
        found = []
        for w in rows:
            if features.end[w] != NO_ANSWER:
                shift = subwords.start + features.first[w] - features.context_at[w]
                start = features.piece_starts[features.start[w] + shift]
                end = features.piece_ends[features.end[w] + shift]
                found.append(context[start:end])
        yield question, found


def count_recovered(squad: SquadFile, features: Features) -> dict[str, int]:
    """Count the questions whose answer the windows contain.

    Of the questions with an answer: those with a target in a window, and of these the ones with
    the exact text, and with the same normalised text.
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
