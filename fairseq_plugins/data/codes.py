"""The byte-pair encoding of words, by subword-nmt, and whether dictionaries belong to it.

`merges.py` learns the codes that are read here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import PADDING, read_dictionary, read_lines
from fairseq_plugins.common.errors import DataError

SEPARATOR = "@@"
WORD_END = "</w>"  # how a codes file marks a merge that ends a word
KNOWN_WORDS = 500_000  # whose pieces a process keeps: some 100 MB


class _KnownWords(dict[str, str]):
    """Word -> its pieces; the first `KNOWN_WORDS` are kept, which has the frequent ones in it."""

    def __init__(self, split: Callable[[str], str]) -> None:
        self._split = split

    def __missing__(self, word: str) -> str:
        pieces = self._split(word)
        if len(self) < KNOWN_WORDS:
            self[word] = pieces
        return pieces


class Codes:
    """The byte-pair encoding of a codes file."""

    def __init__(self, bpe: Any, merged: frozenset[str]) -> None:
        self._bpe, self.merged = bpe, merged
        self._known = _KnownWords(self._split_word)

    @classmethod
    def read(cls, path: Path) -> "Codes":
        """Raises DataError, naming file and line, for what subword-nmt has not written."""
        from subword_nmt.apply_bpe import BPE

        lines = read_lines(path)
        if not lines or not lines[0].startswith("#version:"):
            raise DataError(f"{path}, line 1: no codes of subword-nmt, which begin '#version:'")
        merged = set()
        for number, line in enumerate(lines[1:], start=2):
            parts = line.split(" ")
            if len(parts) != 2 or not all(parts):
                raise DataError(f"{path}, line {number}: not two pieces but {line!r}")
            merged.add("".join(parts))
        with path.open(encoding="utf-8", newline="\n") as merges:
            return cls(BPE(merges), frozenset(merged))

    def split(self, tokens: str) -> str:
        """A line of words -> the line of their pieces, `@@` after all but a word's last."""
        known = self._known
        return " ".join([known[word] for word in tokens.strip().split(" ") if word])

    def _split_word(self, word: str) -> str:
        pieces = " ".join(self._bpe.segment_tokens([word]))
        self._bpe.cache.clear()  # it would keep every word once more, and without end
        return pieces

    def can_make(self, piece: str) -> bool:
        """Whether some text has this piece: a single character, or what a merge has made."""
        text = piece.removesuffix(SEPARATOR)
        return len(text) <= 1 or (text if text != piece else text + WORD_END) in self.merged


def join_pieces(line: str) -> str:
    """A line of pieces -> the line of words."""
    return (line + " ").replace(SEPARATOR + " ", "").strip()


def check_codes(path: Path, dictionaries: Sequence[Path]) -> Codes:
    """The codes of a file.

    Every piece of a dictionary comes from text that the codes have split, so it is a single
    character or what one of the merges makes.

    Raises:
        DataError: naming file and line, where a dictionary is not of these codes.
    """
    codes = Codes.read(path)
    for dictionary in dictionaries:
        for number, word in enumerate(read_dictionary(dictionary), start=1):
            if not word.startswith(PADDING) and not codes.can_make(word):
                raise DataError(
                    f"{dictionary}, line {number}: no merge of {path} makes {word!r}; "
                    "dictionary and codes belong to different vocabularies"
                )
    return codes
