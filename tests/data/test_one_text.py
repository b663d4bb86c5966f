"""One text in three parts."""

import lzma

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.one_text import MOST_BYTES, prepare_one_text, split_lines
from tests.preprocessing import preprocess_here

LINES = [f"line {i} of a text\n".encode() for i in range(2000)]


def test_the_end_is_held_out_and_nothing_is_lost():
    found = split_lines(LINES)
    assert [*found["train"], *found["valid"], *found["test"]] == LINES
    sizes = {split: sum(map(len, lines)) for split, lines in found.items()}
    for split in ("valid", "test"):
        assert sizes[split] == pytest.approx(sum(sizes.values()) / 20, rel=0.05)


def test_a_text_that_cannot_be_parted_is_refused(tmp_path):
    few = "at least 20 lines of similar length, or none is left for valid, but has 1$"
    with pytest.raises(DataError, match=f"^--text must have {few}"):
        split_lines([b"x" * 100_000 + b"\n", b" \n"])
    with pytest.raises(DataError, match="must be a file"):
        prepare_one_text(tmp_path / "none", tmp_path / "out", merges=20, workers=1)
    (tmp_path / "short.txt").write_bytes(b"".join(LINES[:10]))
    with pytest.raises(DataError, match="at least 20,000 bytes"):
        prepare_one_text(tmp_path / "short.txt", tmp_path / "out", merges=20, workers=1)
    (tmp_path / "long.txt").write_bytes(b"".join(LINES) + b"x" * (MOST_BYTES + 1) + b"\n")
    with pytest.raises(DataError, match="must have lines of at most 8,000,000 bytes, but a line"):
        prepare_one_text(tmp_path / "long.txt", tmp_path / "out", merges=20, workers=1)
    assert not (tmp_path / "out").exists()


def test_a_packed_text_becomes_a_data_folder(tmp_path, capsys):
    (tmp_path / "my.txt.xz").write_bytes(lzma.compress(b"".join(LINES)))
    output = tmp_path / "out"
    with preprocess_here():
        prepare_one_text(tmp_path / "my.txt.xz", output, merges=20, workers=1)
    assert (output / "train.bin").is_file() and (output / "data.json").is_file()
    prepare_one_text(tmp_path / "my.txt.xz", output, merges=20, workers=1)
    assert "already there" in capsys.readouterr().out
    assert sum(map(len, LINES)) < MOST_BYTES
