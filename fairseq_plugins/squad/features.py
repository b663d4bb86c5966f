"""Windows of question and text as token ids, and the targets in them.

    <s> question </s></s> subwords of the text </s>

as RoBERTa separates two sentences; BERT has one `</s>` between them. A long text is cut into
windows that begin `stride` subwords after one another (BERT, run_squad). The targets are the first
and the last token of the answer; both are 0, the position of <s>, unless the window has all of it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.offsets import EncodedText
from fairseq_plugins.data.options import check_at_least

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command's --help must not
    from fairseq_plugins.squad.examples import Question, SquadFile

MADE_BY = typed_command("scripts/prepare_squad.sh")

SPECIAL_TOKENS = 4  # per window: <s>, </s></s> and </s>
NO_ANSWER = 0  # position of <s>


@dataclass(frozen=True)
class WindowSizes:
    """Sizes in tokens of a window (with special tokens), the stride, and a question.

    Raises:
        OptionError: a window would have no room for the text.
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
class SpecialTokens:
    """Token ids around question and text, and the number of </s> between them."""

    bos: int
    eos: int
    separators: int = 2


@dataclass(frozen=True)
class Window:
    """One input, with subwords first..first + count - 1 of the text from tokens[context_at] on.

    start, end: indices of the answer's first and last token, or both NO_ANSWER.
    """

    tokens: list[int]
    first: int
    count: int
    context_at: int
    start: int
    end: int


def window_spans(subwords: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield (first subword, count) of every window; an empty text has one empty window."""
    first = 0
    while True:
        count = min(subwords - first, room)
        yield first, count
        if first + count == subwords:
            return
        first += min(count, stride)


def make_windows(
    question: "Question",
    question_tokens: Sequence[int],
    text: EncodedText,
    specials: SpecialTokens,
    sizes: WindowSizes,
) -> Iterator[Window]:
    """Make the windows of a question; the target is its first answer.

    Args:
        question: the question with its answers.
        question_tokens: its token ids, cut at `max_query_length`.
        text: token ids of the text with their character offsets.
        specials: special tokens.
        sizes: sizes of the windows.
    """
    question_ids = list(question_tokens[: sizes.max_query_length])
    head = [specials.bos, *question_ids, *[specials.eos] * specials.separators]
    room = sizes.max_length - len(head) - 1
    answer = question.answers[0] if question.answers else None
    span = text.cover(answer.start, answer.end) if answer else None
    for first, count in window_spans(len(text), room, sizes.stride):
        start = end = NO_ANSWER
        if span and first <= span[0] and span[1] < first + count:
            start, end = (len(head) + piece - first for piece in span)
        tokens = [*head, *text.ids[first : first + count], specials.eos]
        yield Window(tokens, first, count, len(head), start, end)


@dataclass(frozen=True)
class Features:
    """Windows of a split without their tokens, and the character offsets of its subwords.

    For each window (W,): `question` is the question's index in the file, the others as in Window.
    Subword i of text p covers characters piece_starts[k] to piece_ends[k], k = piece_at[p] + i;
    `piece_at` has one entry more than there are texts.
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

    def questions(self, squad: "SquadFile") -> Iterator[tuple["Question", str, slice, range]]:
        """Yield each question of the file with its text, the text's subwords, and its windows.

        The subwords are a slice of `piece_starts` and `piece_ends`, the windows a range of rows.
        """
        windows_at = np.searchsorted(self.question, np.arange(len(squad.questions) + 1)).tolist()
        windows = (range(*pair) for pair in itertools.pairwise(windows_at))
        subwords = (slice(*pair) for pair in itertools.pairwise(self.piece_at.tolist()))
        for paragraph, span in zip(squad.paragraphs, subwords, strict=True):
            for question in paragraph.questions:
                yield question, paragraph.context, span, next(windows)

    def answers(self, squad: "SquadFile") -> Iterator[tuple["Question", list[str]]]:
        """Yield each question with the target texts of its windows, in the file's order.

        A text differs from the answer only if the answer ends inside a subword, as "1990" in
        "1990s".
        """
        for question, context, subwords, rows in self.questions(squad):
            found = []
            for w in rows:
                if self.end[w] != NO_ANSWER:
                    shift = subwords.start + self.first[w] - self.context_at[w]
                    start = self.piece_starts[self.start[w] + shift]
                    found.append(context[start : self.piece_ends[self.end[w] + shift]])
            yield question, found

    @classmethod
    def build(cls, windows: Sequence[Sequence[int]], texts: Sequence[NDArray[np.int32]]) -> Self:
        """Build the features of a split.

        Args:
            windows: `question` to `end` of each.
            texts: (2, N) each, starts and ends of a text's subwords.
        """
        question, first, count, context_at, start, end = (
            np.array(windows, np.int32).reshape(-1, 6).T
        )
        piece_at = np.cumsum([0, *(text.shape[1] for text in texts)], dtype=np.int64)
        starts, ends = np.concatenate([np.zeros((2, 0), np.int32), *texts], axis=1)
        return cls(question, first, count, context_at, start, end, piece_at, starts, ends)

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        np.savez_compressed(path, **{f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def load(cls, path: Path) -> "Features":
        """Read a file written by `save`.

        Raises:
            DataError: the file is missing or damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(**{f.name: arrays[f.name] for f in fields(cls)})
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing; {MADE_BY} makes it") from error
        except Exception as error:  # zipfile, zlib and NumPy raise various types
            raise DataError(f"{path} is damaged: {error}") from error
