"""Files are written whole or not at all, and read plain or packed."""

import gzip
import json
import lzma
import math
import os
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import (
    find_packed,
    read_bytes,
    short_stem,
    write_json,
    write_statistics,
    write_text,
    writing,
)


def refuse(*_):
    raise OSError("no space left on device")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_json(path, {"loss": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": math.nan})
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, step, refuse)
            with pytest.raises(OSError, match="no space"):
                write_json(path, {"loss": 2.0})
    assert json.loads(path.read_text()) == {"loss": 1.0}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_statistics_do_not_depend_on_last_digits(tmp_path):
    pairs = {"effect": (0.44258060382448405, 0.4425806038244841), "seeds": (3, 3)}
    for number in (0, 1):
        found = {name: pair[number] for name, pair in pairs.items()}
        write_statistics(tmp_path / f"{number}.json", [found, {"low": None, "is_tie": True}])
    first, second = ((tmp_path / f"{number}.json").read_text() for number in (0, 1))
    assert first == second and json.loads(first)[0] == {"effect": 0.4425806038, "seeds": 3}
    assert '"seeds": 3\n' in first, "whole numbers stay whole"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_statistics(tmp_path / "claims.json", {"p": math.nan})


def test_files_appear_together_and_only_at_the_end(tmp_path):
    paths = tmp_path / "new" / "a", tmp_path / "new" / "b"
    with writing(*paths) as files:
        for file in files:
            file.write(b"text")
        assert not any(path.exists() for path in paths)
    assert [path.read_bytes() for path in paths] == [b"text", b"text"]
    with pytest.raises(KeyboardInterrupt), writing(*paths) as (first, _):
        first.write(b"other")
        raise KeyboardInterrupt
    assert [path.read_bytes() for path in paths] == [b"text", b"text"]
    assert sorted(paths[0].parent.iterdir()) == list(paths)


def test_two_that_write_one_file_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with writing(path) as (slow,):
        slow.write(b"slow, ")
        write_text(path, "quick")
        slow.write(b"but whole")
    assert path.read_text() == "slow, but whole"


def test_a_file_is_as_readable_as_any_that_the_user_makes(tmp_path):
    write_text(tmp_path / "ours", "a\r\nb\n")
    (tmp_path / "theirs").touch()
    modes = {(tmp_path / name).stat().st_mode for name in ("ours", "theirs")}
    assert len(modes) == 1
    assert (tmp_path / "ours").read_bytes() == b"a\r\nb\n"


@pytest.mark.parametrize(
    ("ending", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)]
)
def test_packed_files_are_found_and_read(ending, pack, tmp_path):
    path = tmp_path / f"text{ending}"
    path.write_bytes(pack(b"some text\n"))
    assert find_packed(tmp_path, "no", "text") == path and find_packed(tmp_path, "no") is None
    assert read_bytes(path) == b"some text\n"
    if ending:
        for damaged in (path.read_bytes()[:-9], b"no"):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=rf"text\{ending} is damaged"):
                read_bytes(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_what_is_no_file_stays_what_it_is_and_a_full_one_is_an_error():
    write_text(Path("/dev/null"), "text")
    with pytest.raises(OSError, match=r"No space left.*/dev/full"):
        write_text(Path("/dev/full"), "text")
    assert Path("/dev/full").is_char_device() and Path("/dev/null").is_char_device()


def test_short_stems_of_names_in_any_script_differ():
    assert short_stem(Path("my own-text.v2.txt.xz")) == "my_own_text"
    names = [short_stem(Path(f"{name}.txt")) for name in ("小说", "新闻", "roman-été", "roman-ete")]
    assert len({*names}) == 4
    assert all(len(name) <= 20 and name.isascii() for name in names)
