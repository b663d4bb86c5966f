"""BERT's WordPiece tokenizer, by the library `tokenizers`, with a fairseq dictionary.

A folder holds `tokenizer.json`, as written by Hugging Face's fast tokenizers, or `vocab.txt` with
an optional `tokenizer_config.json`. BERT's special tokens are fairseq's special symbols: [CLS] is
<s>, [PAD] is <pad>, [SEP] is </s>, [UNK] is <unk>, and [MASK] is <mask>, which tasks add at the end
of a dictionary. All other tokens keep their spelling and order.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.common.dictionaries import DICTIONARY_FILE, MASK, SPECIAL_SYMBOLS, read_lines
from fairseq_plugins.common.errors import DataError, WorkError
from fairseq_plugins.common.extras import install_command, is_installed
from fairseq_plugins.common.files import require_object
from fairseq_plugins.data.offsets import EncodedText

if TYPE_CHECKING:
    from fairseq.data import Dictionary

TOKENIZER_FILE, VOCABULARY_FILE = "tokenizer.json", "vocab.txt"
CONFIG_FILE = "tokenizer_config.json"
# BERT's special tokens -> fairseq's symbols.
SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": MASK}
# BERT's normalizer, and the options of tokenizer_config.json -> its own.
NORMALIZER = "BertNormalizer"
OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")  # that read a vocab.txt
_UPPER_CASE = re.compile("[A-Z]")
_CONTINUES = "##"  # prefix of tokens that continue a word
_UNKNOWN = SYMBOLS["[UNK]"]
_LONGEST_WORD = 100  # characters; BERT reads longer words as [UNK]


def dictionary_symbols(vocabulary: Mapping[str, int]) -> list[str]:
    """Return the entries of the fairseq dictionary for a WordPiece vocabulary.

    Args:
        vocabulary: index of each token.

    Returns:
        All tokens except fairseq's special symbols, in the order of their indices.

    Raises:
        DataError: a special token is missing, indices have gaps, or a token cannot be a
            dictionary entry.
    """
    if absent := [token for token in SYMBOLS if token not in vocabulary]:
        raise DataError(f"the vocabulary lacks {', '.join(absent)}: it is not that of a BERT")
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise DataError(f"the vocabulary must have the numbers 0 to {len(tokens) - 1}, each once")
    reserved = {*SPECIAL_SYMBOLS, MASK}
    for token in tokens:
        if token in reserved or token.split() != [token]:
            raise DataError(f"the token {token!r} cannot be an entry of a fairseq dictionary")
    return [token for token in tokens if token not in SYMBOLS]


@dataclass(frozen=True)
class WordPieceTokenizer:
    """A WordPiece tokenizer, as `data.tokenizers` describes both kinds.

    ``content`` is tokenizer.json without truncation, padding and special tokens.
    """

    folder: Path
    content: Mapping[str, Any]
    files: tuple[str, ...] = field(default=(TOKENIZER_FILE, DICTIONARY_FILE), init=False)
    separators: int = field(default=1, init=False)

    @classmethod
    def load(cls, folder: Path) -> "WordPieceTokenizer":
        """Read the tokenizer in a folder.

        Raises:
            DataError: a damaged file, or another kind of tokenizer.
            WorkError: the library is not installed.
        """
        if not is_installed("tokenizers"):
            raise WorkError(
                f"WordPiece needs the library tokenizers; {install_command('wordpiece')}"
            )
        path, config = folder / TOKENIZER_FILE, folder / CONFIG_FILE
        options = require_object(config) if config.is_file() else {}
        if path.is_file():
            content = require_object(path)
            _check_agreement(path, content, options)
        else:
            path = folder / VOCABULARY_FILE
            content = _from_vocabulary(path, options)
        tokenizer = cls(folder, _without_special_tokens(path, content))
        try:
            _ = tokenizer._tokenizer
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{path} is not a valid tokenizer: {error}") from error
        try:
            dictionary_symbols(tokenizer.vocabulary)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        return tokenizer

    @property
    def vocabulary(self) -> dict[str, int]:
        """Index of each token in the published model."""
        vocabulary: dict[str, int] = self.content["model"]["vocab"]
        return vocabulary

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(json.dumps(self.content))

    @cached_property
    def dictionary(self) -> "Dictionary":
        """The fairseq dictionary, without <mask>."""
        from fairseq.data import Dictionary

        dictionary = Dictionary()
        for symbol in dictionary_symbols(self.vocabulary):
            dictionary.add_symbol(symbol)
        return dictionary

    @cached_property
    def _indices(self) -> list[int]:
        """Dictionary index of each vocabulary index; special tokens in text become <unk>."""
        indices = [0] * len(self.vocabulary)
        for token, i in self.vocabulary.items():
            indices[i] = self.dictionary.index(_UNKNOWN if token in SYMBOLS else token)
        return indices

    def tokenize(self, line: str) -> list[str]:
        """Split a line into dictionary entries, of which only <unk> may be a special symbol."""
        tokens = self._tokenizer.encode(line, add_special_tokens=False).tokens
        return [_UNKNOWN if token in SYMBOLS else token for token in tokens]

    def encode_with_offsets(self, text: str) -> EncodedText:
        """Encode a text with offsets of its characters.

        A token's span includes accents that the tokenizer strips from its last letter.
        """
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        starts = [start for start, _ in encoded.offsets]
        limits = [*starts, len(text)][1:]  # of the marks after each token
        ends = [
            _skip_marks(text, end, limit)
            for (_, end), limit in zip(encoded.offsets, limits, strict=True)
        ]
        return EncodedText([self._indices[i] for i in encoded.ids], starts, ends)

    def text_of(self, symbol: str) -> str | None:
        """Return the text of a dictionary entry; None for special symbols."""
        if symbol not in self.vocabulary or symbol in SYMBOLS:
            return None
        is_inside = symbol.startswith(_CONTINUES) and symbol != _CONTINUES
        return symbol.removeprefix(_CONTINUES) if is_inside else f" {symbol}"

    def _json(self) -> str:
        return json.dumps(self.content, ensure_ascii=False)

    def sums(self) -> dict[str, str]:
        """Return the sha256 of tokenizer.json as `copy` writes it."""
        return {TOKENIZER_FILE: hashlib.sha256(self._json().encode()).hexdigest()}

    def fingerprint(self) -> str:
        """Return the sha256 of tokenizer.json, which determines all else."""
        return self.sums()[TOKENIZER_FILE]

    def copy(self, target: Path) -> None:
        """Write tokenizer.json and dict.txt into an existing folder."""
        (target / TOKENIZER_FILE).write_text(self._json(), encoding="utf-8", newline="\n")
        self.dictionary.save(str(target / DICTIONARY_FILE))


def _skip_marks(text: str, at: int, limit: int) -> int:
    """Return the first index in at..limit without a combining mark; `limit` if there is none."""
    while at < limit and unicodedata.category(text[at]) == "Mn":
        at += 1
    return at


def _without_special_tokens(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of tokenizer.json without truncation, padding and special tokens.

    A special token's spelling in a text, as [MASK], is then split like any other characters.

    Raises:
        DataError: another kind of tokenizer.
    """
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    kind, prefix = model.get("type"), model.get("continuing_subword_prefix")
    if kind != "WordPiece":
        raise DataError(
            f"{path} must be a tokenizer of type WordPiece, but is {kind or 'of no known type'}; "
            "GPT-2's tokenizer is a folder with encoder.json, vocab.bpe and dict.txt"
        )
    if prefix != _CONTINUES:
        raise DataError(
            f"{path} must have continuing_subword_prefix {_CONTINUES!r}, but has {prefix!r}"
        )
    removed = dict.fromkeys(("truncation", "padding", "post_processor"))
    return {**content, **removed, "added_tokens": []}


def _check_agreement(path: Path, content: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Check that tokenizer_config.json states no other options than tokenizer.json has.

    Raises:
        DataError: it does. transformers follows the former and fairseq folders hold the latter.
    """
    normalizer = content.get("normalizer")
    if not isinstance(normalizer, dict) or normalizer.get("type") != NORMALIZER:
        return
    lower = normalizer.get("lowercase")
    for name, theirs in OPTIONS.items():
        stated, found = options.get(name), normalizer.get(theirs)
        if theirs == "strip_accents" and found is None:
            found = lower  # BERT's default
        if stated is not None and stated != found:
            raise DataError(
                f"{path} must have {theirs} {json.dumps(stated)} as {name} in {CONFIG_FILE}, but "
                f"has {json.dumps(found)}; correct the wrong one"
            )


def _check_class(path: Path, options: Mapping[str, Any], tokens: Sequence[str]) -> None:
    """Check that a vocab.txt determines how to split a text.

    Raises:
        DataError: words are found by another tokenizer, or the case is unknown.
    """
    name = options.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in _CLASSES:
        raise DataError(
            f"{path.parent / CONFIG_FILE}: tokenizer_class must be {' or '.join(_CLASSES)} where "
            f"there is no {TOKENIZER_FILE}, but is {name!r}"
        )
    upper = [token for token in tokens if _UPPER_CASE.search(token) and token not in SYMBOLS]
    if upper and options.get("do_lower_case") is None:
        raise DataError(
            f"{path} has tokens in upper case, as {upper[0]!r}, so that {CONFIG_FILE} must state "
            "do_lower_case, true or false"
        )


def _from_vocabulary(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of tokenizer.json for a vocab.txt."""
    tokens = [line.removesuffix("\r") for line in read_lines(path)]
    _check_class(path, options, tokens)
    return {
        "version": "1.0",
        "normalizer": {
            "type": NORMALIZER,
            "clean_text": True,
            "handle_chinese_chars": options.get("tokenize_chinese_chars", True),
            "strip_accents": options.get("strip_accents"),
            "lowercase": options.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": _CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": _CONTINUES,
            "max_input_chars_per_word": _LONGEST_WORD,
            "vocab": {token: number for number, token in enumerate(tokens)},
        },
    }
