"""Parallel text: what is read, what is refused with file and line, what cleaning takes out."""

import errno
import gzip
import hashlib
import io
import lzma
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError, OptionError, WorkError
from fairseq_plugins.translation.moses import Moses, languages
from fairseq_plugins.translation.parallel import Cleaning, find_texts, keep_flags, read_pairs
from fairseq_plugins.translation.wmt14 import (
    WMT14_EN_DE,
    ArchivedCorpus,
    ArchivedText,
    Member,
    extract,
    fetch,
)

Write = Callable[..., tuple[Path, Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes text.en and text.de; returns their paths."""

    def write(english: bytes, german: bytes) -> tuple[Path, Path]:
        paths = tmp_path / "text.en", tmp_path / "text.de"
        for path, data in zip(paths, (english, german), strict=True):
            path.write_bytes(data)
        return paths

    return write


# ---- Moses' rules


def test_moses_tokens_and_back():
    german = Moses("de")
    tokens = german.tokenise("Er sagte: „Das kostet 5,5 %“ - A-B & so.\r")
    assert tokens == "Er sagte : &quot; Das kostet 5,5 % &quot; - A @-@ B &amp; so ."
    assert german.detokenise(tokens) == 'Er sagte: "Das kostet 5,5%" - A-B & so.'
    assert Moses("en").tokenise("It's a\u200bb\tc\u2028d.") == "It &apos;s a b c d ."
    assert german.tokenise(" \r") == german.detokenise("") == ""


def test_languages_differ_and_unknown_ones_are_refused():
    assert {"en", "de", "fr"} <= languages()
    assert Moses("fr").tokenise("l'eau") != Moses("de").tokenise("l'eau")
    with pytest.raises(OptionError, match=r"must be one of .*de, .*but is 'xx'; qaa and qab"):
        Moses("xx")


# ---- pairs of files


def test_only_a_line_feed_ends_a_line(write):
    text = "a\rb\u2028c\n\x85d".encode()
    pairs = list(read_pairs(write(text, b"1\n2\n"), empty_lines=False))
    assert pairs == [("a\rb\u2028c\n".encode(), b"1\n"), (b"\xc2\x85d\n", b"2\n")]


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress])
def test_packed_files_are_read_and_damaged_ones_named(pack, tmp_path):
    ending = ".xz" if pack is lzma.compress else ".gz"
    for language, text in (("en", b"a\nb\n"), ("de", b"c\nd\n")):
        (tmp_path / f"t.{language}{ending}").write_bytes(pack(text))
    english, german = find_texts(tmp_path, ("en", "de"), {"train": ("no", "t")})["train"]
    assert list(read_pairs((english, german), empty_lines=True))[1] == (b"b\n", b"d\n")
    german.write_bytes(german.read_bytes()[:-5])
    with pytest.raises(DataError, match=rf"t\.de\{ending} is damaged"):
        list(read_pairs((english, german), empty_lines=True))


def test_a_text_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"--from .* does not hold valid\.fr or val\.fr, valid"):
        find_texts(tmp_path, ("fr", "en"), {"valid": ("valid", "val")})


@pytest.mark.parametrize(
    ("english", "german", "message"),
    [
        (b"a\nb\n", b"1\n2\n3\n4\n", r"text\.en has 2 lines and .*text\.de has 4: line 3 of "),
        (b"a\nb\nc\n", b"1\n", r"text\.de has 1 lines and .*text\.en has 3: line 2 of text\.en"),
        (b"a\nb\n", b"1\n \t\n", r"text\.de, line 2: must not be empty"),
        (b"a\n\xe2\x80\x8b\n", b"1\n2\n", r"text\.en, line 2: must not be empty"),
        (b"a\nb\xff\n", b"1\n2\n", r"text\.en, line 2: is not UTF-8"),
    ],
)  # fmt: skip
def test_wrong_text_is_refused_with_file_and_line(english, german, message, write):
    with pytest.raises(DataError, match=message):
        list(read_pairs(write(english, german), empty_lines=False))


# ---- cleaning


@pytest.mark.parametrize(
    ("source", "target", "verdict"),
    [
        (1, 1, "kept"), (250, 250, "kept"), (2, 3, "kept"), (3, 2, "kept"),
        (0, 0, "empty"), (0, 5, "empty"), (251, 250, "long"), (200, 251, "long"),
        (2, 4, "ratio"), (16, 10, "ratio"),
    ],
)  # fmt: skip
def test_verdicts_of_the_published_cleaning(source, target, verdict):
    assert Cleaning().verdict(source, target) == verdict


def test_cleaning_counts_and_keeps_the_sides_together(write):
    paths = write(b"a b\n\na b c d\na b c\n", b"1 2 3\n1\n1 2\n1 2 3\n")
    flags, verdicts = keep_flags(paths, Cleaning())
    assert list(flags) == [1, 0, 0, 1]
    assert verdicts == {"kept": 2, "empty": 1, "ratio": 1}
    flags, verdicts = keep_flags(paths, Cleaning(min_length=3, max_ratio=9))
    assert list(flags) == [0, 0, 0, 1]
    assert verdicts == {"kept": 1, "empty": 1, "short": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_length": 0}, "--min-length must be at least 1, but is 0"),
        ({"min_length": 9, "max_length": 8}, r"--max-length must be at least .* \(9\), but is 8"),
        ({"max_ratio": 0.5}, "--max-ratio must be at least 1, but is 0.5"),
        ({"max_ratio": float("nan")}, "--max-ratio must be at least 1, but is nan"),
    ],
)
def test_impossible_bounds(options, message):
    with pytest.raises(OptionError, match=message):
        Cleaning(**options)


# ---- archives, by a small corpus of the same form


ENGLISH_SGM = '<refset>\n<seg id="1"> First  one. </seg>\n<seg id="2">A &amp; B</seg>\n</refset>\n'
GERMAN_SGM = '<seg id="1">Erster.</seg>\n<seg id="2">A &amp; B</seg>\n'
CORPUS = ArchivedCorpus(
    name="tiny",
    languages=("en", "de"),
    train=(Member("train.tgz", "https://example.invalid/t.tgz", ("deep/a.en", "deep/a.de")),),
    test=Member(
        "test.tgz",
        "https://example.invalid/test.tgz",
        ("test/tiny2014-deen-src.en.sgm", "test/tiny2014-deen-ref.de.sgm"),
        lines=2,
    ),
)


def pack(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir()
    pack(
        folder / "train.tgz",
        {"../escaped.txt": b"no", "deep/a.en": b"one\ntwo\n", "deep/a.de": b"eins\nzwei\n"},
    )
    sources = (ENGLISH_SGM, GERMAN_SGM)
    members = zip(CORPUS.test.names, sources, strict=True)
    pack(folder / "test.tgz", {name: text.encode() for name, text in members})
    return folder


def test_archives_and_plain_files_give_the_same_text(archives, tmp_path):
    text = ArchivedText(CORPUS, archives)
    text.require()
    assert [path.name for path in text.inputs()] == ["train.tgz", "test.tgz"]
    found = text.unpack(tmp_path / "work")
    assert found.valid is None
    assert [path.read_text() for path in found.train[0]] == ["one\ntwo\n", "eins\nzwei\n"]
    assert found.test[0].read_text() == "First one.\nA &amp; B\n"  # as sacrebleu reads it
    assert not (tmp_path / "escaped.txt").exists()
    plain = tmp_path / "plain"
    (plain / "training").mkdir(parents=True)
    for path in found.train[0]:
        (plain / "training" / (path.name + ".xz")).write_bytes(lzma.compress(path.read_bytes()))
    for path, language in zip(found.test, CORPUS.languages, strict=True):
        (plain / f"tiny2014.{language}").write_bytes(path.read_bytes())
    again = ArchivedText(CORPUS, plain)
    again.require()
    same = again.unpack(tmp_path / "work2")
    assert [path.name for path in same.test] == ["tiny2014.en", "tiny2014.de"]
    assert list(read_pairs(same.train[0], empty_lines=False))[1] == (b"two\n", b"zwei\n")


def test_packed_markup_is_read_too(archives, tmp_path):
    for name, text in zip(CORPUS.test.names, (ENGLISH_SGM, GERMAN_SGM), strict=True):
        (archives / f"{Path(name).name}.gz").write_bytes(gzip.compress(text.encode()))
    (archives / "test.tgz").unlink()
    found = ArchivedText(CORPUS, archives).unpack(tmp_path / "work")
    assert found.test[0].read_text() == "First one.\nA &amp; B\n"


def test_a_full_disk_is_no_damaged_archive(archives, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left on device"):
        extract(archives / "train.tgz", {"deep/a.en": tmp_path / "a.en"})


def test_what_a_folder_lacks_is_named(archives):
    (archives / "train.tgz").unlink()
    with pytest.raises(DataError, match=r"does not hold a\.en and a\.de \(or train\.tgz\)$"):
        ArchivedText(CORPUS, archives).require()


def test_a_test_set_of_another_length_is_refused(archives, tmp_path):
    corpus = replace(CORPUS, test=replace(CORPUS.test, lines=3))
    with pytest.raises(DataError, match=r"src\.en: expected 3 lines, found 2"):
        ArchivedText(corpus, archives).unpack(tmp_path / "work")


@pytest.mark.parametrize("damage", ["cut", "no archive", "other members"])
def test_damaged_archives_are_named(damage, archives, tmp_path):
    path = archives / "train.tgz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    elif damage == "no archive":
        path.write_bytes(b"no")
    else:
        pack(path, {"deep/b.en": b"one\n"})
    message = "does not hold deep/a.en" if damage == "other members" else "is damaged"
    with pytest.raises(DataError, match=rf"train\.tgz {message}"):
        extract(path, {"deep/a.en": tmp_path / "a.en"})
    assert not (tmp_path / "a.en").exists()


def test_downloads_are_recorded_and_unreachable_ones_say_what_else_works(archives, tmp_path):
    sums = fetch(CORPUS, archives)  # everything is there
    expected = hashlib.sha256((archives / "train.tgz").read_bytes()).hexdigest()
    assert sums["train.tgz"] == expected
    nowhere = Member("x.tgz", "http://127.0.0.1:9/x.tgz", ("a.en", "a.de"))
    with pytest.raises(WorkError, match="same command resumes, or give --from DIR"):
        fetch(replace(CORPUS, train=(nowhere,)), tmp_path / "new")


def test_facts_of_wmt14():
    """The official addresses; sacrebleu knows the archive of the test set too."""
    from sacrebleu.dataset import DATASETS

    full = DATASETS["wmt14/full"]
    assert WMT14_EN_DE.test.url.replace("www.", "") in full.data
    assert [WMT14_EN_DE.test.md5] == full.md5
    assert list(WMT14_EN_DE.test.names) == full.langpairs["en-de"]
    assert [member.archive for member in WMT14_EN_DE.train] == [
        "training-parallel-europarl-v7.tgz",
        "training-parallel-commoncrawl.tgz",
        "training-parallel-nc-v9.tgz",
    ]
