"""Tokenizers for masked language models: GPT-2's byte-level BPE or BERT's WordPiece.

Both have the source `folder`, the names of the `files` that `copy` writes, the fairseq
`dictionary` of their tokens without ``<mask>``, which tasks add, and the number of `separators`,
``</s>`` between the sentences of a pair: 2 in RoBERTa's format, 1 in BERT's.
"""

from pathlib import Path

from fairseq_plugins.data.folders import report
from fairseq_plugins.data.gpt2_bpe import ENCODER_FILE, Gpt2Tokenizer
from fairseq_plugins.data.wordpiece import TOKENIZER_FILE, VOCABULARY_FILE, WordPieceTokenizer

Tokenizer = Gpt2Tokenizer | WordPieceTokenizer
UNKNOWN = "<unk>"
_TOLERATED = 0.01  # share of unknown tokens that is not worth a message


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer in a folder, of either kind.

    Raises DataError: no tokenizer is there, or a file is damaged.
    """
    if is_wordpiece(folder):
        return WordPieceTokenizer.load(folder)
    return Gpt2Tokenizer.load(folder)


def is_wordpiece(folder: Path) -> bool:
    """Return whether a folder holds BERT's tokenizer; a RoBERTa's may have a tokenizer.json too."""
    has_file = any((folder / name).is_file() for name in (TOKENIZER_FILE, VOCABULARY_FILE))
    return has_file and not (folder / ENCODER_FILE).is_file()


def report_unknown(split: str, unknown: int, tokens: int) -> None:
    """Print the share of a split's tokens that are <unk>, if it is above 1 %."""
    if unknown > _TOLERATED * tokens:
        share = f"{unknown / tokens:.0%} of the tokens are <unk>"
        report(f"{split}: {share}, words that the tokenizer cannot spell")
