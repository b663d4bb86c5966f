"""Search for answers by logits (BERT, Sec. 4.2 and 4.3, and run_squad).

A span's score is its first token's start logit plus its last token's end logit; the score of "no
answer" is that of <s>, the lowest over a question's windows. A span begins only in the window that
gives its first token most context.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.squad.features import NO_ANSWER, Features

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command's --help must not
    from fairseq_plugins.squad.examples import SquadFile

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for answers.

    n_best: number of first and last tokens to pair in a window, and of spans to keep.
    max_answer_length: most tokens of an answer.
    null_threshold: v2.0 gives no answer if its score exceeds the best span's by more than this.

    Raises:
        OptionError: a number is below 1, or the threshold is NaN.
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
    """An answer, context[start:end], with its score, a sum of two logits."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Prediction:
    """Answer found for a question.

    spans: non-empty spans, the best first.
    null_score: score of "no answer".
    """

    spans: tuple[Span, ...]
    null_score: float

    def no_answer_margin(self) -> float:
        """Return the score of "no answer" minus the best span's; infinite without a span."""
        return self.null_score - self.spans[0].score if self.spans else math.inf

    def no_answer_probability(self) -> float:
        """Return the logistic function of `no_answer_margin`."""
        margin = self.no_answer_margin()
        if margin < 0:
            return math.exp(margin) / (1.0 + math.exp(margin))
        return 1.0 / (1.0 + math.exp(-margin))

    def text(self, null_threshold: float = math.inf) -> str:
        """Return the best span's text; "" if "no answer" exceeds it by more than the threshold."""
        if not self.spans or self.no_answer_margin() > null_threshold:
            return ""
        return self.spans[0].text

    def n_best(self) -> list[dict[str, Any]]:
        """Return the spans with scores and probabilities (normalised over these spans)."""
        return [
            {
                "text": span.text,
                "probability": round(p, 6),
                "score": round(span.score, 4),
                "start": span.start,
            }
            for span, p in zip(self.spans, self.probabilities(), strict=True)
        ]

    def probabilities(self) -> list[float]:
        """Return the softmax over the spans' scores."""
        if not self.spans:
            return []
        weights = [math.exp(span.score - self.spans[0].score) for span in self.spans]
        return [weight / sum(weights) for weight in weights]


def most_context(windows: Sequence[tuple[int, int]], window: int) -> NDArray[np.bool_]:
    """Return for each subword of windows[window] whether no other window gives it more context.

    The context is the smaller number of subwords before or after, plus 1 % of the window's length;
    the earlier window wins a tie.

    windows: (first subword, count) of each.
    """
    first, count = windows[window]
    pieces = np.arange(first, first + count)
    begin, length = np.array(windows).T[..., np.newaxis]  # (W, 1) each
    context = np.minimum(pieces - begin, begin + length - 1 - pieces)  # below 0 outside
    shares: NDArray[np.float64] = np.where(context < 0, -np.inf, context + 0.01 * length)
    return np.asarray(shares.argmax(axis=0) == window)


def best_pairs(
    start: Logits, end: Logits, may_start: NDArray[np.bool_], options: SearchOptions
) -> Iterator[tuple[int, int, float]]:
    """Yield (first, last, score) of spans in a window.

    Args:
        start: (P,) start logits of the text's subwords.
        end: (P,) end logits.
        may_start: (P,) whether an answer may begin there.
        options: options of the search.
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
    """Find the best spans over all windows of a question.

    Args:
        context: the text.
        offsets: first character of each subword, and the one after its last.
        windows: (first subword, count, index of the first subword's token) of each window.
        logits: start and end logits (T, 2) of each window.
        options: options of the search.
    """
    extents = [(first, count) for first, count, _ in windows]
    null_score, found = math.inf, []
    for i, ((first, count, context_at), scores) in enumerate(zip(windows, logits, strict=True)):
        null_score = min(null_score, float(scores[NO_ANSWER].sum()))
        inside = scores[context_at : context_at + count]
        may_start = most_context(extents, i)
        for begin, end, value in best_pairs(inside[:, 0], inside[:, 1], may_start, options):
            start, stop = int(offsets[0][first + begin]), int(offsets[1][first + end])
            found.append(Span(context[start:stop], start, stop, value))
    found.sort(key=lambda span: (-span.score, span.start, span.end))
    best: dict[str, Span] = {}  # by text
    for span in found:
        if span.text.strip():
            best.setdefault(span.text, span)
    return Prediction(tuple(best.values())[: options.n_best], null_score)


def predict_file(
    squad: "SquadFile", features: Features, logits: Iterable[Logits], options: SearchOptions
) -> Iterator[tuple[str, Prediction]]:
    """Yield (id, prediction) of every question of a file, in order.

    Args:
        squad: the file.
        features: its windows.
        logits: (T, 2) of every window, in order.
        options: options of the search.
    """
    remaining = iter(logits)
    for question, context, subwords, rows in features.questions(squad):
        offsets = features.piece_starts[subwords], features.piece_ends[subwords]
        windows = [
            (int(features.first[w]), int(features.count[w]), int(features.context_at[w]))
            for w in rows
        ]
        scores = [next(remaining) for _ in rows]
        yield question.id, predict_question(context, offsets, windows, scores, options)
