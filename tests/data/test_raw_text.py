"""What a data folder says of the text that it was made from."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.raw_text import RawText, read_raw_text

MADE = {"words": 30, "lines": 4, "bytes": 200, "sha256": "b", "unknown_words": 1}
RAW = {"words": 12, "lines": 4, "bytes": 90, "sha256": "a"}
TOKENS = 34


def write(folder: Path, raw: Any, made: Any) -> Path:
    about = {"raw": {"valid": raw}, "splits": {"valid": made}}
    (folder / "data.json").write_text(json.dumps(about))
    return folder


def without_bytes(**more: Any) -> dict[str, Any]:
    return {name: value for name, value in RAW.items() if name != "bytes"} | more


def test_words_count_the_ends_of_lines(tmp_path: Path) -> None:
    assert read_raw_text(write(tmp_path, RAW, MADE), "valid", TOKENS) == RawText(16, 90, 1)


def test_older_folders(tmp_path: Path) -> None:
    """They say the bytes of the text only where it is what was binarised."""
    found = read_raw_text(write(tmp_path, without_bytes(), MADE), "valid", TOKENS)
    assert (found.words, found.bytes) == (16, None)
    assert "too old to record the bytes" in found.why
    whole = without_bytes(sha256="b", words=30)
    assert read_raw_text(write(tmp_path, whole, MADE), "valid", TOKENS) == RawText(34, 200, 1)


def test_what_is_not_said_is_unknown(tmp_path: Path) -> None:
    assert read_raw_text(tmp_path, "valid", TOKENS) == RawText(why="the folder has no data.json")
    found = read_raw_text(write(tmp_path, RAW, MADE), "test", TOKENS)
    assert found == RawText(why="its data.json lacks 'test'")
    found = read_raw_text(tmp_path, "valid", TOKENS + 1)
    assert found == RawText(why="its data.json has 34 tokens, but the split has 35")


@pytest.mark.parametrize("text", ["{", "[]", '{"raw": {"valid": 3}, "splits": {"valid": 3}}'])
def test_damage_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(DataError, match=r"data\.json is damaged"):
        read_raw_text(tmp_path, "valid", TOKENS)
