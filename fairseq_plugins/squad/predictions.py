"""From the scores of tokens to the text of an answer (BERT, Sec. 4.2 and 4.3, and run_squad).

A span's score is that of its first token plus that of its last one; "no answer" has the score of
<s> in both roles, the lowest over a question's windows. A token that lies in several windows is
answered from the one where it has most context around it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.squad.examples import SquadFile
from fairseq_plugins.squad.features import NO_ANSWER, Features

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class SearchOptions:
    """Settings of the search for answers.

    n_best: how many first and last tokens of a window are paired, and how many spans are kept.
    max_answer_length: of an answer, in tokens.
    null_threshold: in v2.0, "no answer" is given where its score is higher than the best span's by
        more than this.

    Raises:
        OptionError: naming the option, for a number below 1 or a threshold that is none.
    """

    n_best: int = 20
    max_answer_length: int = 30
    null_threshold: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(1, n_best=self.n_best, max_answer_length=self.max_answer_length)
        if math.isnan(self.null_threshold):
            raise OptionError("--null-threshold must be a number, but is nan")


@dataclass(frozen=True)
class Span:
    """An answer: text context[start:end] with its score, a sum of two logits."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Prediction:
    """Answer found for a question.

    spans: the best first; none where its text is empty.
    null_score: of "no answer".
    """

    spans: tuple[Span, ...]
    null_score: float

    def no_answer_margin(self) -> float:
        """The score of "no answer" less that of the best span; infinite where there is none."""
        return self.null_score - self.spans[0].score if self.spans else math.inf

    def no_answer_probability(self) -> float:
        """Return the logistic function of the margin of "no answer" over the best span."""
        margin = self.no_answer_margin()
        if margin < 0:
            return math.exp(margin) / (1.0 + math.exp(margin))
        return 1.0 / (1.0 + math.exp(-margin))

    def text(self, null_threshold: float = math.inf) -> str:
        """The best span's text; empty where "no answer" is better by more than the threshold."""
        if not self.spans or self.no_answer_margin() > null_threshold:
            return ""
        return self.spans[0].text

    def probabilities(self) -> list[float]:
        """Return the probabilities of the spans among themselves."""
        if not self.spans:
            return []
        weights = [math.exp(span.score - self.spans[0].score) for span in self.spans]
        return [weight / sum(weights) for weight in weights]


def most_context(windows: Sequence[tuple[int, int]], window: int) -> NDArray[np.bool_]:
    """Tell of the pieces of windows[window] whether no other window gives them more context.

    windows: (first piece, number of pieces) of each. A piece's context is the smaller of what
    stands before and after it, and slightly more in a longer window; the earlier one wins a tie.
    """
    first, count = windows[window]
    pieces = np.arange(first, first + count)
    own = _context(pieces, first, count)
    best = np.ones(count, bool)
    for other, (begin, length) in enumerate(windows):
        if other == window:
            continue
        inside = (pieces >= begin) & (pieces < begin + length)
        theirs = _context(pieces, begin, length)
        beaten = theirs >= own if other < window else theirs > own
        best &= ~(inside & beaten)
    return best


def _context(pieces: NDArray[np.int64], first: int, count: int) -> NDArray[np.float64]:
    before, after = pieces - first, first + count - 1 - pieces
    return np.asarray(np.minimum(before, after) + 0.01 * count, np.float64)


def best_pairs(
    start: Logits, end: Logits, may_start: NDArray[np.bool_], options: SearchOptions
) -> Iterator[tuple[int, int, float]]:
    """(first, last, score) of spans in a window's text.

    Args:
        start: (P,) logits of the pieces as the first one.
        end: likewise as the last one.
        may_start: (P,) where an answer may begin.
        options: of the search.
    """
    ends = np.argsort(-end, kind="stable")[: options.n_best]
    starts = np.argsort(-start, kind="stable")[: options.n_best]
    for first in starts[may_start[starts]]:
        for last in ends[(ends >= first) & (ends < first + options.max_answer_length)]:
            yield int(first), int(last), float(start[first]) + float(end[last])


def predict_question(
    context: str,
    offsets: tuple[NDArray[np.int32], NDArray[np.int32]],
    windows: Sequence[tuple[int, int, int]],
    logits: Sequence[Logits],
    options: SearchOptions,
) -> Prediction:
    """The best spans over all windows of a question.

    Args:
        context: the text.
        offsets: first character of each of its pieces, and one past the last.
        windows: (first piece, number of pieces, place of the first piece) of each window.
        logits: (T, 2) of each, for the first and for the last token.
        options: of the search.
    """
    extents = [(first, count) for first, count, _ in windows]
    null_score, found = math.inf, []
    for i, ((first, count, context_at), scores) in enumerate(zip(windows, logits, strict=True)):
        null_score = min(null_score, float(scores[NO_ANSWER].sum()))
        inside = scores[context_at : context_at + count]
        may_start = most_context(extents, i)
        for begin, end, value in best_pairs(inside[:, 0], inside[:, 1], may_start, options):
            start_character = int(offsets[0][first + begin])
            end_character = int(offsets[1][first + end])
            found.append((value, start_character, end_character))
    found.sort(key=lambda span: (-span[0], span[1], span[2]))
    spans = []
    seen = set()
    for value, start, end in found:
        text = context[start:end]
        if text.strip() and text not in seen:
            seen.add(text)
            spans.append(Span(text, start, end, value))
        if len(spans) == options.n_best:
            break
    return Prediction(tuple(spans), null_score)


def predict_file(
    squad: SquadFile, features: Features, logits: Iterable[Logits], options: SearchOptions
) -> Iterator[tuple[str, Prediction]]:
    """(id, prediction) of every question of a file, in its order.

    Args:
        squad: the file that the features were made from.
        features: its windows.
        logits: (T, 2) of every window, in their order.
        options: of the search.
    """
    remaining = iter(logits)
    windows_at = np.searchsorted(features.question, np.arange(len(squad.questions) + 1))
    number = 0
    for text, paragraph in enumerate(squad.paragraphs):
        pieces = slice(features.piece_at[text], features.piece_at[text + 1])
        offsets = features.piece_starts[pieces], features.piece_ends[pieces]
        for question in paragraph.questions:
            rows = range(windows_at[number], windows_at[number + 1])
            windows = [
                (int(features.first[w]), int(features.count[w]), int(features.context_at[w]))
                for w in rows
            ]
            scores = [next(remaining) for _ in rows]
            prediction = predict_question(paragraph.context, offsets, windows, scores, options)
            yield question.id, prediction
            number += 1
