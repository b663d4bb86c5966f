"""Application of subword-nmt's byte-pair encoding, and checks of dictionaries against its codes.

`merges.py` learns the codes.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.dictionaries import PADDING, read_dictionary, read_lines
from fairseq_plugins.common.errors import DataError

SEPARATOR = "@@"
WORD_END = "</w>"  # marks a merge at the end of a word in codes files
KNOWN_WORDS = 500_000  # cached words per process: about 130 MB


class Codes:
    """The byte-pair encoding of a codes file of subword-nmt.

    Raises:
        DataError: the file is damaged; the message names the line.
    """

    def __init__(self, path: Path) -> None:
        from subword_nmt.apply_bpe import BPE

        lines = read_lines(path)
        if not lines or not lines[0].startswith("#version:"):
            raise DataError(f"{path}, line 1: codes of subword-nmt must begin with '#version:'")
        self._merged = set()
        for number, line in enumerate(lines[1:], start=2):
            parts = line.split(" ")
            if len(parts) != 2 or not all(parts):
                raise DataError(f"{path}, line {number}: must be two subwords, but is {line!r}")
            self._merged.add("".join(parts))
        with path.open(encoding="utf-8", newline="\n") as merges:
            self._bpe = BPE(merges)
        self._split_word = functools.lru_cache(KNOWN_WORDS)(self._subwords_of)

    def split(self, tokens: str) -> str:
        """Split a line of words into subwords, with `@@` after all but a word's last."""
        return " ".join(map(self._split_word, filter(None, tokens.strip().split(" "))))

    def _subwords_of(self, word: str) -> str:
        subwords = " ".join(self._bpe.segment_tokens([word]))
        self._bpe.cache.clear()  # an unlimited second cache
        return subwords

    def can_make(self, subword: str) -> bool:
        """Return whether a subword is a single character or the result of a merge."""
        text = subword.removesuffix(SEPARATOR)
        return len(text) <= 1 or (text if text != subword else text + WORD_END) in self._merged


def join_pieces(line: str) -> str:
    """Join a line of subwords into words."""
    return (line + " ").replace(SEPARATOR + " ", "").strip()


def check_codes(path: Path, dictionaries: Sequence[Path]) -> Codes:
    """Read codes, and check that all entries of the dictionaries can come from them.

    Such entries are single characters or results of a merge.

    Raises:
        DataError: naming file and line of an entry of other codes.
    """
    codes = Codes(path)
    for dictionary in dictionaries:
        for number, word in enumerate(read_dictionary(dictionary), start=1):
            if not word.startswith(PADDING) and not codes.can_make(word):
                raise DataError(
                    f"{dictionary}, line {number}: no merge of {path} makes {word!r}; "
                    "dictionary and codes belong to different vocabularies"
                )
    return codes
