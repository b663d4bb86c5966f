"""BERT's WordPiece: the same pieces as transformers', as words of a fairseq dictionary."""

import json
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary
from transformers import BertTokenizerFast

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.tokenizers import Tokenizer, load_tokenizer
from fairseq_plugins.data.wordpiece import SYMBOLS, TOKENIZER_FILE, dictionary_symbols
from tests.published import VOCABULARY, write_bert_folder

TEXTS = (
    "The cat sat on the mat.",
    "  What's   sitting-there?\t",
    "Caf\u00e9 na\u00efve Z\u00fcrich",  # accents are stripped, and lengths change
    "\u4e2d\u6587 dog",  # each Chinese character is a word, and unknown
    "zero\u200bwidth \u00a0space\u3000wide",
    "tab\there\rreturn\x00null\x07bell",
    "a" * 101,  # longer than WordPiece reads
    "[MASK] [SEP] </s> <s> [unused0]",  # characters like others
    "I\u0307stanbul \ufb01ne",  # lower case and NFD change the number of characters
    "",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def pieces(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_and_offsets_are_those_of_transformers(
    text: str, folder: Path, pieces: Tokenizer
) -> None:
    theirs = BertTokenizerFast.from_pretrained(folder, split_special_tokens=True)
    found = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
    expected = [SYMBOLS.get(token, token) for token in found.tokens()]
    if "[" not in text:  # which they read as special tokens
        assert pieces.tokenize(text) == expected
        encoded = pieces.encode_with_offsets(text)
        assert [*zip(encoded.starts, encoded.ends, strict=True)] == found["offset_mapping"]
        assert [pieces.dictionary[i] for i in encoded.ids] == expected
    assert not {"<mask>", "</s>", "<s>"} & set(pieces.tokenize(text))


def test_the_dictionary_has_the_order_of_the_vocabulary(pieces: Tokenizer, tmp_path: Path) -> None:
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    rest = [token for token in VOCABULARY if token not in SYMBOLS]
    assert pieces.dictionary.symbols == [*specials, *rest]
    pieces.copy(tmp_path)
    assert Dictionary.load(str(tmp_path / "dict.txt")) == pieces.dictionary
    copied = load_tokenizer(tmp_path)
    assert copied.sums() == pieces.sums() and copied.dictionary == pieces.dictionary
    assert copied.separators == 1


def test_a_vocabulary_alone_is_enough(folder: Path, pieces: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    found = load_tokenizer(tmp_path)
    assert [found.tokenize(text) for text in TEXTS] == [pieces.tokenize(text) for text in TEXTS]


def test_truncation_and_padding_of_the_file_are_off(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / TOKENIZER_FILE).read_text())
    content["truncation"] = {
        "max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right",
    }  # fmt: skip
    content["padding"] = {
        "strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(content))
    assert len(load_tokenizer(tmp_path).tokenize("the cat sat on the mat")) == 6


def test_pieces_inside_a_word_have_no_space_in_front(pieces: Tokenizer) -> None:
    texts = [pieces.text_of(symbol) for symbol in pieces.tokenize("sitting mats")]
    assert texts[0] == " s" and texts[1] == "i" and " mat" in texts
    assert pieces.text_of("<s>") is None and pieces.text_of("[CLS]") is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (TOKENIZER_FILE, "{", "is damaged"),
        (TOKENIZER_FILE, "[]", "must be an object"),
        (TOKENIZER_FILE, '{"model": {"type": "BPE"}}', "must be a tokenizer of type WordPiece"),
        ("vocab.txt", "[PAD]\n[UNK]\nthe\n", r"lacks \[CLS\]"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n<s>\n", "cannot be a word"),
    ],
)
def test_what_is_no_wordpiece_is_refused(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        load_tokenizer(tmp_path)
    assert str(error.value).startswith(str(tmp_path / name))


def test_numbers_of_a_vocabulary_have_no_gaps() -> None:
    vocabulary: dict[str, Any] = {token: 2 * i for i, token in enumerate(VOCABULARY)}
    with pytest.raises(DataError, match="each once"):
        dictionary_symbols(vocabulary)
