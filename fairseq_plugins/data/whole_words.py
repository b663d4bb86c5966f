"""Word boundaries in rows of subwords, for whole-word masking."""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_plugins.common.dictionaries import MASK, PADDING
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.tokenizers import load_tokenizer

if TYPE_CHECKING:  # fairseq takes seconds, which a command's --help must not
    from fairseq.data import Dictionary

_PART_OF_A_CHARACTER = "\ufffd"  # decoding of an incomplete character


class WordStartMask:
    """Mask of word starts in a sample of subwords.

    It replaces fairseq's mask, which has one value for each dictionary entry, ignores neighbours,
    and would join <s> and the first word of a line. A subword begins a word after white space,
    which GPT-2's subwords contain. As in BERT's tokenizer, every punctuation mark or symbol is a
    word, so the next subword begins a word as well. Special symbols are words too. Incomplete
    characters count as letters.

    Args:
        texts: text of each dictionary entry, empty for special symbols.
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
        """Return 1 where a word begins, else 0; called by fairseq's dataset.

        Args:
            dim: 0, the only dimension of a sample.
            item: (T,) int64, a sample.

        Returns:
            (T,) uint8, starting with 1.
        """
        before = item[:-1]
        begins = self._begins_with_mark[item]
        begins[1:] |= self._ends_with_mark[before]
        begins[1:] &= ~self._blank[before]  # a space of its own belongs to the next word
        begins[1:] |= self._alone[before]
        begins |= self._spaced[item] | self._alone[item]
        begins[:1] = True
        return begins.to(torch.uint8)


def word_start_mask(dictionary: "Dictionary", folder: Path) -> WordStartMask:
    """Make a mask of word starts for the dictionary of a tokenizer folder.

    Raises DataError: a file is missing or damaged, or the dictionary has other tokens.
    """
    tokenizer = load_tokenizer(folder)
    texts, foreign = [], []
    for i in range(len(dictionary)):
        symbol = dictionary[i]
        text = tokenizer.text_of(symbol)
        texts.append(text or "")
        is_special = i < dictionary.nspecial or symbol == MASK or symbol.startswith(PADDING)
        if text is None and not is_special:
            foreign.append(symbol)
    if foreign:
        raise DataError(
            f"the words of the dictionary must be tokens of {folder} to mask whole words, but "
            f"{len(foreign)} are not, the first is {foreign[0]!r}"
        )
    return WordStartMask(texts)


def _is_mark(character: str) -> bool:
    """Return whether a character is punctuation or a symbol by its Unicode category."""
    if not character or character == _PART_OF_A_CHARACTER:
        return False
    return unicodedata.category(character)[0] in "PS"
