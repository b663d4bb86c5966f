"""GPT-2's pieces: any text comes back exactly, damaged files are named."""

import json
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.gpt2_bpe import (
    FILES,
    Gpt2Tokenizer,
    learn_gpt2_bpe,
    load_encoder,
)

TEXT = ["the other day the cat's hat was on that mat", "", "  naïve 42 cats, 42 hats! \n"] * 3
# Surrogates are no characters: UTF-8 cannot hold them.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bpe")
    assert learn_gpt2_bpe(TEXT, 25, path) == 25
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path):
    return load_encoder(folder)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Gpt2Tokenizer:
    return Gpt2Tokenizer.load(folder)


@given(text=ANY_TEXT)
def test_any_text_comes_back(encoder, text: str) -> None:
    ids = encoder.encode(text)
    assert encoder.decode(ids) == text
    assert len(ids) <= len(text.encode())


def test_words_are_not_kept_without_limit(folder: Path, monkeypatch) -> None:
    tokenizer, few = Gpt2Tokenizer.load(folder), Gpt2Tokenizer.load(folder)
    lines = [f"{number} 天{number}地" for number in range(10, 40)]
    expected = [tokenizer.tokenize(line) for line in lines]
    monkeypatch.setattr("fairseq_plugins.data.gpt2_bpe.KNOWN_WORDS", 6)
    assert [few.tokenize(line) for line in lines] == expected
    assert len(few.encoder.cache) < 12 < len(tokenizer.encoder.cache)


@given(lines=st.lists(ANY_TEXT, min_size=1), merges=st.integers(1, 30), text=ANY_TEXT)
def test_any_text_can_be_learned_from(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], merges: int, text: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    if not any(line.strip() for line in lines):
        with pytest.raises(DataError, match="no text"):
            learn_gpt2_bpe(lines, merges, folder)
        return
    assert learn_gpt2_bpe(lines, merges, folder) <= merges
    encoder = load_encoder(folder)
    assert encoder.decode(encoder.encode(text)) == text


def test_pieces_are_of_the_text_and_counted(folder: Path, encoder, tokenizer) -> None:
    pieces = [encoder.decoder[int(word)] for word in tokenizer.tokenize(" q the cat\n")]
    assert pieces == ["q", "\u0120the", "\u0120cat"]  # the mark is GPT-2's for a space
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    assert len(dictionary) % 8 == 0
    counts = {word: dictionary.count[dictionary.index(word)] for word in dictionary.symbols[4:]}
    found = [word for line in TEXT for word in tokenizer.tokenize(line)]
    assert {w: n for w, n in counts.items() if n} == {w: found.count(w) for w in set(found)}
    assert {str(i) for i in encoder.encoder.values()} <= counts.keys()
    assert sorted(counts.values(), reverse=True) == list(counts.values())


def test_a_transformers_tokenizer_reads_the_same_pieces(folder: Path, tokenizer) -> None:
    """The format is GPT-2's: an independent reader of it splits in the same way."""
    tokenizers = pytest.importorskip("tokenizers")
    merges = [
        tuple(line.split(" ")) for line in (folder / "vocab.bpe").read_text().split("\n")[1:-1]
    ]
    vocabulary = json.loads((folder / "encoder.json").read_text())
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in (*TEXT, "Ünïcode ẞ 日本語  two  spaces\tand\ttabs"):
        assert theirs.encode(text.strip()).ids == [int(w) for w in tokenizer.tokenize(text)]


@pytest.mark.parametrize("merges", [0, -1])
def test_too_few_merges_are_refused(merges: int, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="merges must be at least 1"):
        learn_gpt2_bpe(TEXT, merges, tmp_path)
    assert not list(tmp_path.iterdir())


def damaged(folder: Path, target: Path, name: str, content: bytes | None) -> Path:
    for other in FILES:
        (target / other).write_bytes((folder / other).read_bytes())
    (target / name).unlink() if content is None else (target / name).write_bytes(content)
    return target


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"does not hold {name};"):
        load_encoder(damaged(folder, tmp_path, name, None))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", b'{"!": 0, ', "encoder.json is damaged"),
        ("encoder.json", b'["!"]', "it must be an object"),
        ("encoder.json", b'{"!": 0}', "255 of the 256 bytes have no id"),
        ("encoder.json", b"\xff", "encoder.json is damaged"),
        ("vocab.bpe", b"t h\n", "must begin with a line '#version'"),
        ("vocab.bpe", b"#version: 0.2\nt h", "end with a whole line"),
        ("vocab.bpe", b"#version: 0.2\nt h\nq q q\n", r"vocab.bpe, line [23]: "),
        ("dict.txt", b"0 1\n1 1\n", "dict.txt lacks"),
    ],
)
def test_a_damaged_file_is_named(
    name: str, content: bytes, message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        load_encoder(damaged(folder, tmp_path, name, content))
