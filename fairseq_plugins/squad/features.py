"""Questions with windows of their texts, as token ids: what a model reads and what it has to find.

    <s> question </s></s> pieces of the text </s>

as RoBERTa separates two sentences; BERT has one `</s>` between them. A text that is longer than the
room for it is cut into windows that begin `stride` pieces after one another (BERT, run_squad). What
has to be found are the first and the last token of the answer; where a window holds none, or a part
of it, both are 0, the place of <s>.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.offsets import EncodedText
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.squad.examples import Question

MADE_BY = as_typed("scripts/prepare_squad.sh")

SPECIAL_TOKENS = 4  # of a window: <s>, </s></s> in its middle and </s>
NO_ANSWER = 0  # where <s> is


@dataclass(frozen=True)
class WindowSizes:
    """Sizes in tokens: a window with its special tokens, the stride, a question.

    Raises:
        OptionError: naming the option, where a window would have no room for the text.
    """

    max_length: int = 384
    stride: int = 128
    max_query_length: int = 64

    def __post_init__(self) -> None:
        check_at_least(1, **asdict(self))
        fewest = self.max_query_length + SPECIAL_TOKENS + 1
        if self.max_length < fewest:
            raise OptionError(
                f"--max-length must be at least {fewest} with --max-query-length "
                f"{self.max_query_length}, but is {self.max_length}"
            )


TOY_SIZES = WindowSizes(max_length=64, stride=32, max_query_length=8)  # for generated texts


@dataclass(frozen=True)
class Specials:
    """Numbers of the symbols around question and text, and how many </s> separate the two."""

    bos: int
    eos: int
    separators: int = 2


@dataclass(frozen=True)
class Window:
    """One input: pieces first .. first + count - 1 of the text, from tokens[context_at] on.

    start and end are the answer's first and last token, or both NO_ANSWER.
    """

    tokens: list[int]
    first: int
    count: int
    context_at: int
    start: int
    end: int


def spans_of_windows(pieces: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """(first piece, number of pieces) of every window of a text; one, empty, of an empty text."""
    first = 0
    while True:
        count = min(pieces - first, room)
        yield first, count
        if first + count == pieces:
            return
        first += min(count, stride)


def make_windows(
    question: Question,
    question_tokens: Sequence[int],
    text: EncodedText,
    specials: Specials,
    sizes: WindowSizes,
) -> Iterator[Window]:
    """The windows of a question; the first of several answers is the one to find.

    Args:
        question: with its answers.
        question_tokens: its pieces as numbers of the dictionary; cut at `max_query_length`.
        text: the pieces of the text as such numbers, with their places.
        specials: <s>, </s> and the form of a pair.
        sizes: of windows.
    """
    asked = list(question_tokens[: sizes.max_query_length])
    head = [specials.bos, *asked, *[specials.eos] * specials.separators]
    room = sizes.max_length - len(head) - 1
    answer = question.answers[0] if question.answers else None
    span = text.cover(answer.start, answer.end) if answer else None
    for first, count in spans_of_windows(len(text), room, sizes.stride):
        start = end = NO_ANSWER
        if span and first <= span[0] and span[1] < first + count:
            start, end = (len(head) + piece - first for piece in span)
        tokens = [*head, *text.ids[first : first + count], specials.eos]
        yield Window(tokens, first, count, len(head), start, end)


@dataclass(frozen=True)
class Features:
    """Windows of a split without their tokens, and the offsets of the pieces of its texts.

    Of windows (W,): `question` is the question's number in the file, and the others as in Window.
    Piece i of text p touches its characters piece_starts[k] to piece_ends[k], for
    k = piece_at[p] + i; piece_at is one longer than there are texts.
    """

    question: NDArray[np.int32]
    first: NDArray[np.int32]
    count: NDArray[np.int32]
    context_at: NDArray[np.int32]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    piece_at: NDArray[np.int64]
    piece_starts: NDArray[np.int32]
    piece_ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.question)

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        np.savez_compressed(path, **{f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def load(cls, path: Path) -> "Features":
        """Read what `save` wrote.

        Raises:
            DataError: where the file is absent or damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(**{f.name: arrays[f.name] for f in fields(cls)})
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing; {MADE_BY} makes it") from error
        except Exception as error:  # zipfile, zlib, numpy and a missing array each have their own
            raise DataError(f"{path} is damaged: {error}") from error


class FeatureTable:
    """Gathers the windows and texts of a split for `Features`."""

    def __init__(self) -> None:
        self._windows: list[tuple[int, int, int, int, int, int]] = []
        self._starts: list[NDArray[np.int32]] = []
        self._ends: list[NDArray[np.int32]] = []

    def add_text(self, text: EncodedText) -> None:
        """The next text of the file."""
        self._starts.append(np.array(text.starts, np.int32))
        self._ends.append(np.array(text.ends, np.int32))

    def add_window(self, question: int, window: Window) -> None:
        """A window of the question with this number."""
        w = window
        self._windows.append((question, w.first, w.count, w.context_at, w.start, w.end))

    def finish(self) -> Features:
        """Return all windows that were added."""
        question, first, count, context_at, start, end = (
            np.array(self._windows, np.int32).reshape(-1, 6).T
        )
        sizes = [0, *(len(starts) for starts in self._starts)]
        empty = [np.zeros(0, np.int32)]
        return Features(
            question,
            first,
            count,
            context_at,
            start,
            end,
            np.cumsum(sizes, dtype=np.int64),
            np.concatenate(self._starts or empty),
            np.concatenate(self._ends or empty),
        )
