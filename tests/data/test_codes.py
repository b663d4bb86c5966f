"""Codes: which dictionaries belong to them, and errors with file and line."""

import io
from pathlib import Path

import pytest
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.codes import Codes, check_codes, join_pieces

TEXT = "the cat sat on the mat and the rat sat on that cat &quot; at last &quot;\n" * 5
OTHER = "zwölf boxkämpfer jagen viktor quer über den großen sylter deich\n" * 5


def write_codes(path: Path, text: str, merges: int = 20) -> Path:
    with path.open("w", encoding="utf-8") as codes:
        learn_bpe(io.StringIO(text), codes, merges)
    return path


def write_dictionary(path: Path, codes: Path, text: str) -> Path:
    with codes.open(encoding="utf-8") as file:
        pieces = dict.fromkeys(BPE(file).process_line(text.strip()).split())
    lines = [f"{piece} 5" for piece in pieces] + ["madeupword0000 0"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_pieces_are_those_of_subword_nmt_and_join_again(tmp_path):
    codes = write_codes(tmp_path / "codes", TEXT)
    with codes.open(encoding="utf-8") as file:
        expected = BPE(file).process_line(OTHER.strip())
    pieces = Codes(codes).split(OTHER)
    assert pieces == expected != OTHER.strip()
    assert join_pieces(pieces) == OTHER.strip()
    assert join_pieces("ab@@ c d@@") == "abc d"


def test_words_are_split_alike_known_or_not(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.data.codes.KNOWN_WORDS", 2)
    path = write_codes(tmp_path / "codes", TEXT)
    codes, line = Codes(path), " the  cat,\u00a0at rats\u2028 that the cat \n"
    with path.open(encoding="utf-8") as file:
        expected = BPE(file).process_line(line.strip())
    assert [codes.split(line), codes.split(line)] == [expected, expected]
    assert codes.split(" \n") == ""


def test_a_dictionary_of_the_same_text_is_accepted(tmp_path):
    codes = write_codes(tmp_path / "codes", TEXT)
    known = write_dictionary(tmp_path / "dict.en.txt", codes, TEXT)
    rare = write_dictionary(tmp_path / "dict.de.txt", codes, OTHER)
    check_codes(codes, [known, rare])


def test_codes_of_another_vocabulary_are_refused(tmp_path):
    codes = write_codes(tmp_path / "codes", TEXT)
    dictionary = write_dictionary(tmp_path / "dict.en.txt", codes, TEXT)
    other = write_codes(tmp_path / "other", OTHER)
    with pytest.raises(DataError, match=r"dict\.en\.txt, line 1: no merge of .*other makes"):
        check_codes(other, [dictionary])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t h\n", "codes, line 1: codes of subword-nmt"),
        ("", "codes, line 1: codes of subword-nmt"),
        ("#version: 0.2\nt h\nt he x\n", r"codes, line 3: .* but is 't he x'"),
        ("#version: 0.2\n\nt h\n", r"codes, line 2: .* but is ''"),
    ],
)
def test_damaged_codes(content, message, tmp_path):
    (tmp_path / "codes").write_text(content)
    with pytest.raises(DataError, match=message):
        Codes(tmp_path / "codes")
