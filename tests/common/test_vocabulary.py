"""Checkpoints and dictionaries: what each of them says is compared, and no more than that."""

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.common.dictionaries import MASK, SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    ROBERTA_TABLE,
    SIDE_TABLES,
    Vocabulary,
    check_vocabulary,
    digest,
)

WORDS = ["a", "b", "c"]
SYMBOLS = (*SPECIAL_SYMBOLS, *WORDS)


def write(folder: Path, words: list[str], name: str = "dict.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{word} 1\n" for word in words))
    return folder / name


def state(table: str, rows: int, known: str = "", **task: Any) -> dict[str, Any]:
    model = {"dictionary_digest": known} if known else {}
    return {"model": {f"x.{table}": torch.zeros(rows, 2)}, "cfg": {"model": model, "task": task}}


def test_a_digest_is_of_the_words_in_their_order():
    assert digest(SYMBOLS) == digest((*SYMBOLS, MASK))
    assert digest(SYMBOLS) != digest((*SPECIAL_SYMBOLS, "b", "a", "c"))
    assert digest(SYMBOLS, SYMBOLS) == f"{digest(SYMBOLS)}-{digest(SYMBOLS)}"
    assert digest(["ab", "c"]) != digest(["a", "bc"])


def test_sizes_count_the_mask_of_bidirectional_models_alone(tmp_path):
    path = write(tmp_path, WORDS)
    for table, rows in ((ROBERTA_TABLE, 8), (DECODER_TABLE, 7)):
        vocabulary = Vocabulary.read(path, table)
        check_vocabulary(tmp_path / "x.pt", state(table, rows), vocabulary)
        with pytest.raises(CheckpointError, match=rf"x\.pt has 9 tokens, but .* has {rows} \("):
            check_vocabulary(tmp_path / "x.pt", state(table, 9), vocabulary)


def test_adaptive_tables_have_no_size_that_could_be_compared(tmp_path):
    vocabulary = Vocabulary.read(write(tmp_path, WORDS), DECODER_TABLE)
    adaptive = state("decoder.embed_tokens.embeddings.0.0.weight", 2, digest(SYMBOLS))
    check_vocabulary(tmp_path / "x.pt", adaptive, vocabulary)


@pytest.mark.parametrize("place", ["beside it", "trained on", "input0"])
def test_without_a_digest_words_are_compared_where_they_are_found(place, tmp_path):
    folder = tmp_path / "trained on"
    folder.mkdir()
    checkpoint = tmp_path / "elsewhere" / "x.pt"
    if place == "beside it":
        checkpoint = folder / "x.pt"
    write(folder / "input0" if place == "input0" else folder, ["b", "a", "c"])
    vocabulary = Vocabulary.read(write(tmp_path / "ours", WORDS), DECODER_TABLE)
    trained = state(DECODER_TABLE, 7, data=f"{folder}:another")
    for config in (trained, {**trained, "cfg": {"task": Namespace(**trained["cfg"]["task"])}}):
        with pytest.raises(CheckpointError, match="but token 4 is 'a' instead of 'b'"):
            check_vocabulary(checkpoint, config, vocabulary)
    # What training wrote is proof enough.
    check_vocabulary(checkpoint, state(DECODER_TABLE, 7, digest(SYMBOLS)), vocabulary)


def test_nothing_to_compare_with_is_a_warning(tmp_path, caplog):
    vocabulary = Vocabulary.read(write(tmp_path / "ours", WORDS), DECODER_TABLE)
    with caplog.at_level(logging.WARNING):
        check_vocabulary(tmp_path / "x.pt", state(DECODER_TABLE, 7, data="gone"), vocabulary)
    assert "x.pt does not record its dictionary" in caplog.text


def test_both_sides_count_and_their_order(tmp_path):
    words = {"en": ["a"], "de": ["b"]}
    paths = [write(tmp_path, known, f"dict.{language}.txt") for language, known in words.items()]
    sides = [Vocabulary.read(*side) for side in zip(paths, SIDE_TABLES, strict=True)]
    known = digest(*(side.symbols for side in sides))
    weights = {table: torch.zeros(5, 2) for table in SIDE_TABLES}
    trained = {"model": weights, "cfg": {"model": {"dictionary_digest": known}}}
    check_vocabulary(Path("x.pt"), trained, *sides)
    with pytest.raises(CheckpointError, match=r"dict\.de\.txt and .*dict\.en\.txt must have"):
        check_vocabulary(Path("x.pt"), trained, *sides[::-1])
