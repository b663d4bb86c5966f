"""GPT-2's byte-level pieces with the characters that they stand for.

A piece is a run of bytes, so one may hold a part of a character, and a word's first piece holds
the space before it. The offsets of a piece are those of the characters it touches, without that
space, so that the span of a word is the word.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SPACE = ord(" ")


@dataclass(frozen=True)
class EncodedText:
    """A text in pieces: piece i has the id ids[i] and touches text[starts[i]:ends[i]]."""

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last piece of the fewest that hold text[start:end]; None for spaces alone."""
        first = bisect_right(self.ends, start)
        last = bisect_left(self.starts, end) - 1
        return (first, last) if first <= last else None


def encode_with_offsets(encoder: Any, text: str) -> EncodedText:
    """The pieces of a text, spaces around it included.

    Args:
        encoder: fairseq's, of GPT-2's byte-level pieces.
        text: any that can be written as UTF-8.
    """
    pieces = EncodedText([], [], [])
    for match in encoder.pat.finditer(text):
        for piece, start, end in _pieces_of(encoder, match.group()):
            pieces.ids.append(encoder.encoder[piece])
            pieces.starts.append(match.start() + start)
            pieces.ends.append(match.start() + end)
    return pieces


def _pieces_of(encoder: Any, word: str) -> Iterator[tuple[str, int, int]]:
    """The pieces of one of GPT-2's words, with offsets from its first character."""
    # The character that each byte belongs to.
    owners = [i for i, character in enumerate(word) for _ in character.encode()]
    space = encoder.byte_encoder[_SPACE]
    at = 0
    symbols = "".join(encoder.byte_encoder[byte] for byte in word.encode())
    for piece in encoder.bpe(symbols).split(" "):
        start, end = owners[at], owners[at + len(piece) - 1] + 1
        at += len(piece)
        # A space is the first byte of a word, or the word is nothing but spaces.
        if len(piece) > 1 and piece[0] == space and not word.isspace():
            start += 1
        yield piece, start, end
