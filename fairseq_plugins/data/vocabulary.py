"""Pieces of a byte-pair encoding, and whether dictionaries and models belong to it."""

from collections.abc import Sequence
from pathlib import Path

from subword_nmt.apply_bpe import BPE

from fairseq_plugins.common.errors import DataError

SEPARATOR = "@@"
WORD_END = "</w>"  # how a codes file marks a merge that ends a word
PADDING = "madeupword"  # fairseq's entries that round a dictionary up to a multiple of 8


class Pieces:
    """The byte-pair encoding of a codes file."""

    def __init__(self, bpe: BPE, merged: frozenset[str]) -> None:
        self._bpe, self.merged = bpe, merged

    @classmethod
    def read(cls, path: Path) -> "Pieces":
        """Raises DataError, naming file and line, for what subword-nmt has not written."""
        lines = _read_lines(path)
        if not lines or not lines[0].startswith("#version:"):
            raise DataError(f"{path}, line 1: no codes of subword-nmt, which begin '#version:'")
        merged = set()
        for number, line in enumerate(lines[1:], start=2):
            parts = line.split(" ")
            if len(parts) != 2 or not all(parts):
                raise DataError(f"{path}, line {number}: not two pieces but {line!r}")
            merged.add("".join(parts))
        with path.open(encoding="utf-8", newline="\n") as codes:
            return cls(BPE(codes), frozenset(merged))

    def split(self, tokens: str) -> str:
        """A line of words -> the line of their pieces, `@@` after all but a word's last."""
        pieces: str = self._bpe.process_line(tokens.strip())
        return pieces

    def can_make(self, piece: str) -> bool:
        """Whether some text has this piece: a single character, or what a merge has made."""
        text = piece.removesuffix(SEPARATOR)
        return len(text) <= 1 or (text if text != piece else text + WORD_END) in self.merged


def join_pieces(line: str) -> str:
    """A line of pieces -> the line of words."""
    return (line + " ").replace(SEPARATOR + " ", "").strip()


def read_dictionary(path: Path) -> list[str]:
    """The words of one of fairseq's dictionaries.

    Raises:
        DataError: naming file and line, for a line that is not a word and its count.
    """
    words = []
    for number, line in enumerate(_read_lines(path), start=1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdigit():
            raise DataError(f"{path}, line {number}: not a word and its count but {line!r}")
        words.append(word)
    return words


def check_same_dictionary(ours: Path, theirs: Path) -> None:
    """Raise DataError with file and line where two dict.txt have other words or another order.

    Counts may differ, as only the order gives a word its number.
    """
    found, expected = read_dictionary(ours), read_dictionary(theirs)
    for number, (word, wanted) in enumerate(zip(found, expected, strict=False), start=1):
        if word != wanted:
            raise DataError(
                f"{ours}, line {number}: must be {wanted!r} as in {theirs}, but is {word!r}"
            )
    if len(found) != len(expected):
        raise DataError(f"{ours} must have {len(expected)} lines as {theirs}, but has {len(found)}")


def check_vocabulary(codes: Path, dictionaries: Sequence[Path]) -> None:
    """Raise DataError, naming file and line, where a dictionary is not of these codes.

    Every piece of a dictionary comes from text that the codes have split, so it is a single
    character or what one of the merges makes.
    """
    pieces = Pieces.read(codes)
    for path in dictionaries:
        for number, word in enumerate(read_dictionary(path), start=1):
            if not word.startswith(PADDING) and not pieces.can_make(word):
                raise DataError(
                    f"{path}, line {number}: no merge of {codes} makes {word!r}; "
                    "dictionary and codes belong to different vocabularies"
                )


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error
