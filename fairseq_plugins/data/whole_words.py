"""Where words begin in a row of byte-level pieces, for a masked model that hides whole words."""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.tokenizers import load_tokenizer

if TYPE_CHECKING:  # fairseq takes seconds, which a command's --help must not
    from fairseq.data import Dictionary

_PART_OF_A_CHARACTER = "\ufffd"  # what a piece of some of a character's bytes reads as
_PADDING = "madeupword"  # fairseq's words that make a dictionary's size a round number


class WordStartMask:
    """Which pieces of a sample begin a word, in place of fairseq's mask over the vocabulary.

    A piece begins a word where white space is in front of it (GPT-2's pieces have it at their
    beginning), and as for BERT's tokenizer every punctuation mark or symbol is a word of its own,
    so that what follows one begins a word too. Special symbols stand alone; fairseq's mask, which
    sees no neighbours, would join <s> and the first word of a line. Subwords that are part of a
    character count as letters.

    Args:
        texts: by symbol of the dictionary, empty for those that are no pieces.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        def mark(is_so: Callable[[str], bool]) -> Tensor:
            return torch.tensor([is_so(text) for text in texts], dtype=torch.bool)

        self._alone = mark(lambda text: not text)
        self._spaced = mark(lambda text: text[:1].isspace())
        self._blank = mark(str.isspace)
        self._begins_with_mark = mark(lambda text: _is_mark(text[:1]))
        self._ends_with_mark = mark(lambda text: _is_mark(text[-1:]))

    def gather(self, dim: int, item: Tensor) -> Tensor:
        """One where a word begins, else zero: what fairseq's dataset asks of its mask.

        Args:
            dim: 0, the only one that a sample has.
            item: (T,) int64, a sample.

        Returns:
            (T,) uint8, the first of them 1.
        """
        before = item[:-1]
        begins = self._begins_with_mark[item]
        begins[1:] |= self._ends_with_mark[before]
        begins[1:] &= ~self._blank[before]  # a space that is a piece belongs to what follows
        begins[1:] |= self._alone[before]
        begins |= self._spaced[item] | self._alone[item]
        begins[:1] = True
        return begins.to(torch.uint8)


def word_start_mask(dictionary: "Dictionary", pieces: Path) -> WordStartMask:
    """Find where words begin in a dictionary of the tokenizer in a folder.

    Raises:
        DataError: a file is missing or damaged, or words of the dictionary are no tokens of it.
    """
    tokenizer = load_tokenizer(pieces)
    texts, foreign = [], []
    for i in range(len(dictionary)):
        symbol = dictionary[i]
        text = tokenizer.text_of(symbol)
        texts.append(text or "")
        is_special = i < dictionary.nspecial or symbol == MASK or symbol.startswith(_PADDING)
        if text is None and not is_special:
            foreign.append(symbol)
    if foreign:
        raise DataError(
            f"the words of the dictionary must be tokens of {pieces} to mask whole words, but "
            f"{len(foreign)} are not, the first is {foreign[0]!r}"
        )
    return WordStartMask(texts)


def _is_mark(character: str) -> bool:
    """Whether it is punctuation or a symbol, by Unicode's categories; no character is none."""
    if not character or character == _PART_OF_A_CHARACTER:
        return False
    return unicodedata.category(character)[0] in "PS"
