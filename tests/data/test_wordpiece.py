"""WordPiece in a fairseq dictionary, against transformers' BertTokenizerFast."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizerFast

from fairseq_plugins.common.errors import DataError, WorkError
from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe
from fairseq_plugins.data.tokenizers import load_tokenizer
from fairseq_plugins.data.wordpiece import OPTIONS, SYMBOLS, WordPieceTokenizer, dictionary_symbols
from tests.published import SPECIALS, VOCABULARY

TOKENS = (*VOCABULARY, "The", "é", "É", "東", "京", "[", "]", "<", ">", "/", "##>", "“", "$", "caf")
SENTENCES = (
    "The café's cat sat; É and e\u0301clair ÀÉÎ naïve",
    "東京 and 日本語 catsat東the",
    "what?!-- (who) $5 “the” don't",
    f"the {'a' * 100} cat {'a' * 101} dog",
    "the\x00cat\x07sat\u200bon\ufffdthe\x7fmat",
    "the\rcat\x85sat\u2028on\u3000the\tmat\x0b\x1c dog",
    " the  cat ",
    "",
    "\r \u00a0",
    "İstanbul ß ǅ \U0001d4b3 \U0001f469\u200d\U0001f467 the",
)
# What could be taken for a token without text.
LITERALS = "the [MASK] [CLS] [SEP] [PAD] [UNK] </s> <mask> <s> [unused0] cat"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return tmp_path


def write_json(folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Write tokenizer.json as published models have it: cutting and filling to 8 tokens."""
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    content = json.loads(tokenizer.to_str())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": True, "tokenizer_class": "DistilBertTokenizerFast"},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        None,  # tokenizer.json
    ],
)
def test_tokens_and_offsets_are_those_of_transformers(folder: Path, options) -> None:
    if options is None:
        write_json(folder)
    else:
        (folder / "tokenizer_config.json").write_text(json.dumps(options))
    own = {name: options[name] for name in OPTIONS if name in options} if options else {}
    theirs = BertTokenizerFast(vocab=str(folder / "vocab.txt"), **own)
    ours = load_tokenizer(folder)
    for text in SENTENCES:
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        tokens = theirs.convert_ids_to_tokens(expected["input_ids"])
        words = [SYMBOLS.get(token, token) for token in tokens]
        assert ours.tokenize(text) == words, text
        found = ours.encode_with_offsets(text)
        assert [ours.dictionary[i] for i in found.ids] == words
        for start, end, offsets in zip(
            found.starts, found.ends, expected["offset_mapping"], strict=True
        ):
            marks = text[offsets[1] : end]  # which transformers leaves out
            assert start == offsets[0] and end >= offsets[1], text
            assert all(unicodedata.combining(mark) for mark in marks), text


def test_offsets_are_of_the_text_as_it_is_given(folder: Path) -> None:
    text = "É e\u0301d\x00 ÉaÀ Cats"
    found = load_tokenizer(folder).encode_with_offsets(text)
    spans = [text[a:b] for a, b in zip(found.starts, found.ends, strict=True)]
    assert spans == ["É", "e\u0301", "d", "É", "a", "À", "Cat", "s"]


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json", "white space"])
def test_text_becomes_no_special_symbol(form: str, folder: Path) -> None:
    def split_at_spaces(content: dict[str, Any]) -> None:
        content.update(pre_tokenizer={"type": "WhitespaceSplit"}, normalizer=None)

    if form != "vocab.txt":
        write_json(folder, split_at_spaces if form == "white space" else lambda _: None)
    ours = load_tokenizer(folder)
    allowed = {*TOKENS, "<unk>"} - {*SYMBOLS}
    assert {*ours.tokenize(LITERALS)} <= allowed
    ids = {*ours.encode_with_offsets(LITERALS).ids}
    specials = {ours.dictionary.bos(), ours.dictionary.eos(), ours.dictionary.pad()}
    assert ids.isdisjoint(specials) and max(ids) < len(ours.dictionary)


def test_the_dictionary_has_the_vocabularys_size_and_order(folder: Path, tmp_path: Path) -> None:
    ours = load_tokenizer(folder)
    assert ours.separators == 1
    assert len(ours.dictionary) + 1 == len(TOKENS)  # with <mask>
    rest = [token for token in TOKENS if token not in SYMBOLS]
    assert dictionary_symbols(WordPieceTokenizer.load(folder).vocabulary) == rest
    assert ours.dictionary.symbols[ours.dictionary.nspecial :] == rest
    copied = tmp_path / "copy"
    copied.mkdir()
    ours.copy(copied)
    again = load_tokenizer(copied)
    assert again.sums() == ours.sums() and again.fingerprint() == ours.fingerprint()
    assert {path.name for path in copied.iterdir()} == {*ours.files}
    lines = (copied / "dict.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == rest


def test_a_folder_of_gpt2s_pieces_is_read_as_such(folder: Path) -> None:
    """Published models of RoBERTa have a tokenizer.json of theirs beside the pieces."""
    write_json(folder, lambda content: content["model"].update(type="BPE"))
    learn_gpt2_bpe(["the cat sat"] * 3, 5, folder)
    assert load_tokenizer(folder).separators == 2


def change(**model: Any) -> Callable[[Path], None]:
    """Make a change of the model in tokenizer.json."""
    return lambda folder: write_json(folder, lambda content: content["model"].update(model))


def damage(name: str, content: bytes) -> Callable[[Path], object]:
    """Make a change of a whole file."""
    return lambda folder: (folder / name).write_bytes(content)


def tokens(*names: str) -> bytes:
    """Write a vocabulary."""
    return "".join(f"{name}\n" for name in names).encode()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(type="BPE"), r"tokenizer\.json must be a tokenizer of type WordPiece, but is BPE"),
        (change(vocab=["the"]), r"tokenizer\.json is not a valid tokenizer"),
        (change(vocab={"the": -1}), r"tokenizer\.json is not a valid tokenizer"),
        (change(vocab={t: 2 * i for i, t in enumerate(TOKENS)}), "the numbers 0 to .*, each once"),
        (change(continuing_subword_prefix="@@"), "'##', but has '@@'"),
        (damage("tokenizer.json", b"[]"), r"tokenizer\.json is damaged: it must be an object"),
        (damage("tokenizer.json", b'{"model":'), r"tokenizer\.json is damaged"),
        (damage("tokenizer.json", b'{"model": 3}'), "but is of no known type"),
        (damage("tokenizer_config.json", b"\xff"), r"tokenizer_config\.json is damaged"),
        (
            damage("tokenizer_config.json", b"{}"),
            r"vocab\.txt has tokens in upper case, as 'The', so that tokenizer_config\.json must "
            "state do_lower_case",
        ),
        (
            damage("tokenizer_config.json", b'{"tokenizer_class": "BertJapaneseTokenizer"}'),
            "tokenizer_class must be BertTokenizer or .* but is 'BertJapaneseTokenizer'",
        ),
        (damage("vocab.txt", b"\xff"), r"vocab\.txt: not UTF-8"),
        (damage("vocab.txt", tokens("the", *SPECIALS[1:])), r"vocab\.txt: .* lacks \[PAD\]"),
        (damage("vocab.txt", tokens(*TOKENS, "the")), r"vocab\.txt: .* each once"),
        (damage("vocab.txt", tokens(*TOKENS, "a b")), r"vocab\.txt: the token 'a b' cannot be"),
        (damage("vocab.txt", tokens(*TOKENS, "<s>")), r"vocab\.txt: the token '<s>' cannot be"),
    ],
)
def test_what_is_no_wordpiece_is_refused(spoil, message: str, folder: Path) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"do_lower_case": False}, "must have lowercase false as do_lower_case .*, but has true"),
        ({"strip_accents": False}, "must have strip_accents false .*, but has true"),
        ({"tokenize_chinese_chars": False}, "must have handle_chinese_chars false .* has true"),
        ({"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}, None),
        ({"strip_accents": True, "tokenizer_class": "AnyTokenizer"}, None),
    ],
)
def test_two_files_that_contradict_each_other_are_refused(
    stated, message: str | None, folder: Path
) -> None:
    """transformers follows tokenizer_config.json, whatever tokenizer.json has."""
    write_json(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    if message is None:
        assert load_tokenizer(folder).tokenize("The é") == ["the", "e"]
        return
    with pytest.raises(DataError, match=message):
        load_tokenizer(folder)


def test_a_missing_folder_or_library_is_named(folder: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match="nowhere"):
        load_tokenizer(tmp_path / "nowhere")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(WorkError, match=r"needs the library tokenizers; .*\[wordpiece\]"):
        load_tokenizer(folder)
