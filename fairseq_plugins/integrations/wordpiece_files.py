"""WordPiece vocabularies in a Hugging Face folder: tokenizer.json, vocab.txt."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import MASK, SPECIAL_SYMBOLS, read_lines
from fairseq_plugins.integrations.folders import read_json

TOKENIZER_FILE, VOCABULARY_FILE = "tokenizer.json", "vocab.txt"
SETTINGS_FILE = "tokenizer_config.json"
# BERT's special tokens in the order of fairseq's <s>, <pad>, </s>, <unk>; the mask comes last.
SPECIAL_TOKENS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]")
MASK_TOKEN = "[MASK]"
_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Read the ids of all tokens from tokenizer.json or vocab.txt.

    Raises:
        ValueError: neither is there, one is damaged or is no WordPiece vocabulary, the two
            differ, a special token is absent, or ids are not 0 to V-1.
    """
    found = [
        (path, read(path))
        for name, read in ((TOKENIZER_FILE, _of_tokenizer), (VOCABULARY_FILE, _of_lines))
        if (path := folder / name).is_file()
    ]
    if not found:
        raise ValueError(f"{folder} does not hold {TOKENIZER_FILE} or {VOCABULARY_FILE}")
    path, vocabulary = found[0]
    for other, tokens in found[1:]:
        if tokens != vocabulary:
            raise ValueError(f"{other} must have the tokens of {path}, but has others")
    _check(path, vocabulary)
    return vocabulary


def _of_tokenizer(path: Path) -> dict[str, int]:
    content = read_json(path)
    model = content.get("model")
    kind = model.get("type", "WordPiece") if isinstance(model, dict) else None
    if kind != "WordPiece" or not isinstance(model, dict):
        raise ValueError(f"{path} must be of WordPiece, but is of {kind or 'nothing'}")
    added = content.get("added_tokens") or []
    try:
        return {**model["vocab"], **{token["content"]: token["id"] for token in added}}
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged: it has no vocabulary") from error


def _of_lines(path: Path) -> dict[str, int]:
    tokens = read_lines(path)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(t for index, t in enumerate(tokens) if vocabulary[t] != index)
        raise ValueError(f"{path} must have each token once, but has {twice!r} twice")
    return vocabulary


def _check(path: Path, vocabulary: Mapping[str, Any]) -> None:
    absent = [token for token in (*SPECIAL_TOKENS, MASK_TOKEN) if token not in vocabulary]
    if absent:
        raise ValueError(f"{path} lacks {', '.join(absent)}")
    ids = list(vocabulary.values())
    if any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise ValueError(f"{path}: ids must be 0 to {len(ids) - 1}, each once")
    for token in vocabulary:
        if token in (*SPECIAL_SYMBOLS, MASK) or not token or set(token) & set("\n\r "):
            raise ValueError(f"{path} has the token {token!r}, which fairseq cannot have as a word")


def tokens_in_our_order(vocabulary: Mapping[str, int]) -> list[str]:
    """Order tokens as fairseq's dictionary has them: special ones, words by their id, the mask."""
    specials = (*SPECIAL_TOKENS, MASK_TOKEN)
    words = [t for t in sorted(vocabulary, key=vocabulary.__getitem__) if t not in specials]
    return [*SPECIAL_TOKENS, *words, MASK_TOKEN]


def write_tokenizer(source: Path, target: Path) -> None:
    """Copy tokenizer.json and vocab.txt; make the first from the second where it is absent.

    What tokenizer_config.json does not say is as in BERT: accents go with capital letters, and
    these where the vocabulary has none.
    """
    for name in (TOKENIZER_FILE, VOCABULARY_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    if (target / TOKENIZER_FILE).is_file():
        return
    from tokenizers import BertWordPieceTokenizer

    vocabulary = _of_lines(source / VOCABULARY_FILE)
    specials = (*SPECIAL_TOKENS, MASK_TOKEN)
    cased = any(t != t.lower() for t in vocabulary if t not in specials and t[0] != "[")
    settings: dict[str, Any] = {"lowercase": not cased}
    if (source / SETTINGS_FILE).is_file():
        given = read_json(source / SETTINGS_FILE)
        settings |= {ours: given[name] for name, ours in _SETTINGS.items() if name in given}
    BertWordPieceTokenizer(vocabulary, **settings).save(str(target / TOKENIZER_FILE))
