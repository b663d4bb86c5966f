"""Tokenizers for masked language models: GPT-2's byte-level BPE or BERT's WordPiece."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fairseq_plugins.data.offsets import EncodedText

if TYPE_CHECKING:  # fairseq takes seconds, which a command's --help must not
    from fairseq.data import Dictionary


class Tokenizer(Protocol):
    """A tokenizer folder with the fairseq dictionary of its tokens.

    Attributes:
        folder: source folder.
        files: names of the files that `copy` writes.
        separators: ``</s>`` between the sentences of a pair: 2 in RoBERTa's format, 1 in BERT's.
    """

    @property
    def folder(self) -> Path: ...

    @property
    def files(self) -> tuple[str, ...]: ...

    @property
    def separators(self) -> int: ...

    @property
    def dictionary(self) -> "Dictionary":
        """Dictionary of the tokens, without ``<mask>``, which tasks add."""

    def tokenize(self, line: str) -> list[str]:
        """Split a line into dictionary entries, ignoring surrounding white space."""

    def encode_with_offsets(self, text: str) -> EncodedText:
        """Encode a text as dictionary indices, with the character span of each token."""

    def text_of(self, symbol: str) -> str | None:
        """Return the text of a dictionary entry, with a space in front if it begins a word.

        None for special symbols.
        """

    def sums(self) -> dict[str, str]:
        """Return the sha256 of each file that `copy` writes, except the dictionary."""

    def fingerprint(self) -> str:
        """Return one sha256 over all files."""

    def copy(self, target: Path) -> None:
        """Write the files into an existing folder."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer in a folder, of either kind.

    Raises DataError: no tokenizer is there, or a file is damaged.
    """
    from fairseq_plugins.data import gpt2_bpe, wordpiece

    names = (wordpiece.TOKENIZER_FILE, wordpiece.VOCABULARY_FILE)
    is_wordpiece = any((folder / name).is_file() for name in names)
    if is_wordpiece and not (folder / gpt2_bpe.ENCODER_FILE).is_file():
        return wordpiece.WordPieceTokenizer.load(folder)
    return gpt2_bpe.Gpt2Tokenizer.load(folder)
