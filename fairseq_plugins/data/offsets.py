"""Character offsets of GPT-2's byte-level subwords.

A subword is a run of bytes, so it may contain a part of a character, and a word's first one
contains the space before it. Offsets cover the characters it touches, without that space.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SPACE = ord(" ")


@dataclass(frozen=True)
class EncodedText:
    """Subwords of a text: subword i has id ids[i] and covers text[starts[i]:ends[i]]."""

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last subword covering text[start:end]; None for only spaces."""
        first = bisect_right(self.ends, start)
        last = bisect_left(self.starts, end) - 1
        return (first, last) if first <= last else None


def encode_with_offsets(encoder: Any, text: str) -> EncodedText:
    """Encode a text with offsets, including surrounding spaces.

    Args:
        encoder: fairseq's encoder of GPT-2's subwords.
        text: text that can be encoded in UTF-8.
    """
    encoded = EncodedText([], [], [])
    for match in encoder.pat.finditer(text):
        for subword, start, end in _subwords_of(encoder, match.group()):
            encoded.ids.append(encoder.encoder[subword])
            encoded.starts.append(match.start() + start)
            encoded.ends.append(match.start() + end)
    return encoded


def _subwords_of(encoder: Any, word: str) -> Iterator[tuple[str, int, int]]:
    """Yield the subwords of a word, with offsets from its first character."""
    # Index of the character of each byte.
    owners = [i for i, character in enumerate(word) for _ in character.encode()]
    space = encoder.byte_encoder[_SPACE]
    at = 0
    symbols = "".join(encoder.byte_encoder[byte] for byte in word.encode())
    for subword in encoder.bpe(symbols).split(" "):
        start, end = owners[at], owners[at + len(subword) - 1] + 1
        at += len(subword)
        # A space is the first byte of a word, or the word consists of spaces.
        if len(subword) > 1 and subword[0] == space and not word.isspace():
            start += 1
        yield subword, start, end
