"""Preparing translation data: the same tokens as from the tools called one by one, what is left
behind, what is refused, and what a second or resumed call does."""

import codecs
import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data import merges
from fairseq_plugins.translation import folders as parallel_folders
from fairseq_plugins.translation import prepare as prepare_parallel
from fairseq_plugins.translation.prepare import Settings, prepare_archived, prepare_files
from fairseq_plugins.translation.wmt14 import ArchivedCorpus, Member

REPOSITORY = Path(__file__).resolve().parents[2]
LANGUAGES = ("en", "de")
NAMES = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
ENGLISH = [
    "The cat isn't on the mat: it sleeps in the well-known garden.",
    "“Two dogs” ran 5 % faster & farther (than the cat).",
    "A man sees the dog in the garden and the cat on the mat.",
]
GERMAN = [
    "Die Katze ist nicht auf der Matte: sie schläft im wohl-bekannten Garten.",
    "„Zwei Hunde“ liefen 5 % schneller & weiter (als die Katze).",
    "Ein Mann sieht den Hund im Garten und die Katze auf der Matte.",
]
SETTINGS = Settings(merges=60)


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(line + "\n" for line in lines).encode())


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder with all splits; its training text has an empty line and a far too long one."""
    folder = tmp_path / "raw text"
    folder.mkdir()
    for language, lines in zip(LANGUAGES, (ENGLISH, GERMAN), strict=True):
        spoilt = ["", "yes"] if language == "de" else ["nothing", "no " * 20]
        train = "".join(line + "\n" for line in lines * 4 + spoilt).encode()
        (folder / f"train.{language}.xz").write_bytes(lzma.compress(train))
        write_lines(folder / f"val.{language}", lines[:2])
        write_lines(folder / f"test.{language}", [line + "\r" for line in lines[1:]])
    return folder


@pytest.fixture
def binarised(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In place of fairseq-preprocess, which takes seconds to start; the list counts the calls."""
    calls: list[Path] = []

    def preprocess(work, arguments, workers):
        calls.append(work)
        folder = work / "binarised"
        folder.mkdir()
        source, target = (
            arguments[arguments.index(f"--{side}-lang") + 1] for side in ("source", "target")
        )
        for language in (source, target):
            (folder / f"dict.{language}.txt").write_text("a 1\n")
            for split in NAMES:
                for suffix in ("bin", "idx"):
                    (folder / f"{split}.{source}-{target}.{language}.{suffix}").touch()
        return ["python", *arguments]

    monkeypatch.setattr(parallel_folders, "preprocess", preprocess)
    return calls


def left_in(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def about(folder: Path) -> dict:
    return json.loads((folder / "data.json").read_text())


# ---- what comes out


def by_hand(raw: Path, work: Path) -> Path:
    """The same by sacremoses, subword-nmt's and fairseq's own commands, one after the other."""
    work.mkdir()
    kept: dict[str, list[str]] = {}
    for language in LANGUAGES:
        normaliser, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
        for split in NAMES:
            path = raw / f"{'val' if split == 'valid' else split}.{language}"
            packed = Path(f"{path}.xz")
            data = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
            lines = [
                tokenizer.tokenize(normaliser.normalize(line), True, return_str=True)
                for line in data.decode().splitlines()
            ]
            write_lines(work / f"{split}.{language}.tok", lines)
    text = b"".join((work / f"train.{language}.tok").read_bytes() for language in LANGUAGES)
    (work / "both").write_bytes(text)
    learn = [sys.executable, "-m", "subword_nmt.learn_bpe", "-s", "60", "-i", str(work / "both")]
    subprocess.run([*learn, "-o", str(work / "codes")], check=True, capture_output=True)
    for split in NAMES:
        for language in LANGUAGES:
            tokens, pieces = work / f"{split}.{language}.tok", work / f"{split}.{language}"
            apply = [sys.executable, "-m", "subword_nmt.apply_bpe", "-c", str(work / "codes")]
            apply += ["-i", str(tokens)]
            subprocess.run([*apply, "-o", str(pieces)], check=True, capture_output=True)
    for language in LANGUAGES:  # the last two pairs are the spoilt ones
        kept[language] = (work / f"train.{language}").read_text().splitlines()[:-2]
        write_lines(work / f"train.{language}", kept[language])
    words = ["--source-lang", "en", "--target-lang", "de", "--destdir", "bin"]
    for split in NAMES:
        words += [f"--{split}pref", split]
    preprocess = [sys.executable, "-m", "fairseq_cli.preprocess", *words]
    subprocess.run(preprocess, cwd=work, check=True, capture_output=True)
    return work


@pytest.mark.slow
def test_the_same_as_the_tools_called_one_by_one(raw, tmp_path):
    """The one test that runs fairseq-preprocess itself."""
    output = tmp_path / "data" / "pair"
    prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    work = by_hand(raw, tmp_path / "by hand")
    assert (output / "codes").read_bytes() == (work / "codes").read_bytes()
    compared = [path for path in (work / "bin").iterdir() if path.suffix != ".log"]
    assert len(compared) == 14  # two dictionaries, three splits of two sides in two files
    for path in compared:
        assert (output / path.name).read_bytes() == path.read_bytes(), path.name
    assert (output / "dict.en.txt").read_bytes() != (output / "dict.de.txt").read_bytes()
    found = about(output)
    assert found["cleaning"] == {"train": {"pairs": 14, "empty": 1, "kept": 12, "ratio": 1}}
    for language in LANGUAGES:
        lines = (output / f"dict.{language}.txt").read_text().count("\n")
        assert found["dictionary_size"][language] == lines + 4
        assert found["splits"]["train"][language]["lines"] == 12
    assert str(tmp_path) not in (output / "data.json").read_text()
    assert found["origin"] == {"from": "raw text"}


def test_raw_text_is_kept_untouched(raw, tmp_path, binarised):
    output = tmp_path / "data" / "pair"
    prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    for split, name in (("valid", "val"), ("test", "test")):
        for language in LANGUAGES:
            data = (raw / f"{name}.{language}").read_bytes()
            assert (output / "raw" / f"{split}.{language}").read_bytes() == data
            described = about(output)["raw"][split][language]
            assert described["sha256"] == hashlib.sha256(data).hexdigest()
    assert left_in(output / "raw") == ["test.de", "test.en", "valid.de", "valid.en"]


def test_source_lines_of_train_in_other_splits_are_told(raw, tmp_path, binarised, capsys):
    write_lines(raw / "val.en", [ENGLISH[0], "Another cat."])
    prepare_files(raw, tmp_path / "data" / "pair", LANGUAGES, SETTINGS, NAMES)
    assert about(tmp_path / "data" / "pair")["seen_lines"] == {"valid": 50.0, "test": 100.0}
    said = "prepare: lines that also occur in train: 50% of valid, 100% of test\n"
    assert said in capsys.readouterr().out


def test_a_byte_order_mark_is_no_text(raw, tmp_path, binarised):
    path = raw / "test.en"
    text = path.read_bytes()
    path.write_bytes(codecs.BOM_UTF8 + text)
    prepare_files(raw, tmp_path / "data" / "pair", LANGUAGES, SETTINGS, NAMES)
    assert (tmp_path / "data" / "pair" / "raw" / "test.en").read_bytes() == text


def test_processes_give_the_same_as_one(raw, tmp_path, binarised):
    sums = []
    for workers in (1, 2):
        output = tmp_path / f"data{workers}" / "pair"
        prepare_files(raw, output, LANGUAGES, Settings(60, workers=workers), NAMES)
        sums.append((about(output)["splits"], about(output)["codes"]))
    assert sums[0] == sums[1]


# ---- again and again


def test_a_second_call_does_nothing_and_other_text_is_noticed(raw, tmp_path, binarised, capsys):
    output = tmp_path / "data" / "pair"
    for _ in range(2):
        prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    assert len(binarised) == 1
    assert "pair is already there" in capsys.readouterr().out
    with pytest.raises(DataError, match=r"pair has other data \(merges is 60, not 61\)"):
        prepare_files(raw, output, LANGUAGES, Settings(61), NAMES)
    prepare_files(raw, output, LANGUAGES, Settings(61, force=True), NAMES)
    write_lines(raw / "test.de", GERMAN[:2])
    with pytest.raises(DataError, match=r"pair has other data \(other files: test\.de\)"):
        prepare_files(raw, output, LANGUAGES, Settings(61), NAMES)
    prepare_files(raw, output, LANGUAGES, Settings(61, force=True), NAMES)
    assert len(binarised) == 3
    assert (output / "raw" / "test.de").read_bytes() == (raw / "test.de").read_bytes()
    (output / "raw" / "test.de").unlink()
    prepare_files(raw, output, LANGUAGES, Settings(61), NAMES)
    assert len(binarised) == 4
    assert left_in(output.parent) == ["pair"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The languages for which a tokeniser was built, in order."""
    built: list[str] = []
    original = parallel_folders.tokeniser

    def tokeniser(language):
        built.append(language)
        return original(language)

    monkeypatch.setattr(parallel_folders, "tokeniser", tokeniser)
    return built


def test_what_was_cut_off_goes_on_and_ends_the_same(raw, tmp_path, binarised, counted, monkeypatch):
    whole = tmp_path / "whole" / "pair"
    prepare_files(raw, whole, LANGUAGES, SETTINGS, NAMES)
    output = tmp_path / "data" / "pair"
    learn = merges.learn_merges
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 1:
            yield "h", "a"  # half a file
            raise KeyboardInterrupt
        yield from learn(*arguments)

    monkeypatch.setattr(merges, "learn_merges", interrupted)
    counted.clear()
    with pytest.raises(KeyboardInterrupt):
        prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    assert left_in(output.parent) == [".pair.building"]
    assert len(counted) == 6
    prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    assert len(counted) == 6  # tokens were there
    assert left_in(output.parent) == ["pair"]
    ours, theirs = about(output), about(whole)
    assert ours == theirs


def test_another_request_does_not_take_over_what_was_left(
    raw, tmp_path, binarised, counted, monkeypatch
):
    output = tmp_path / "data" / "pair"
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(merges, "learn_merges", raise_no_space)
        prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    write_lines(raw / "test.en", ENGLISH[:2])
    prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    assert len(counted) == 12
    raw_test = (output / "raw" / "test.en").read_text()
    assert raw_test.splitlines() == ENGLISH[:2]


def raise_no_space(*args: object, **more: object) -> None:
    raise OSError("no space")


# ---- a published corpus of the same form as WMT14


def test_every_hundredth_pair_is_held_out_and_cleaned(tmp_path, binarised):
    source = tmp_path / "raw"
    source.mkdir()
    for language in LANGUAGES:
        first = [f"{language} {n}" for n in range(1, 151)]
        second = [f"{language} {n}" for n in range(151, 402)]
        first[99] = ""  # held out, and then cleaned away
        write_lines(source / f"a.{language}", first)
        write_lines(source / f"b.{language}", second)
        write_lines(source / f"t.{language}", ["a test"])

    def member(name: str) -> Member:
        return Member(f"{name}.tgz", "https://example.invalid/", (f"{name}.en", f"{name}.de"))

    corpus = ArchivedCorpus("tiny", LANGUAGES, (member("a"), member("b")), member("t"))
    output = tmp_path / "data" / "tiny"
    for _ in range(2):
        prepare_archived(corpus, output, SETTINGS, source)
    assert len(binarised) == 1
    found = about(output)
    assert found["cleaning"]["train"] == {"pairs": 397, "kept": 397}
    assert found["cleaning"]["valid"] == {"pairs": 4, "empty": 1, "kept": 3}
    held_out = (output / "raw" / "valid.de").read_text().splitlines()
    assert held_out == ["de 200", "de 300", "de 400"]
    assert found["splits"]["valid"]["en"]["lines"] == 3
    digest = hashlib.sha256((source / "a.en").read_bytes()).hexdigest()
    assert found["origin"]["sha256"]["a.en"] == digest
    write_lines(source / "a.en", [f"other {n}" for n in range(1, 151)])
    with pytest.raises(DataError, match=r"has other data \(other files: a\.en\)"):
        prepare_archived(corpus, output, SETTINGS, source)
    prepare_archived(corpus, output, replace(SETTINGS, force=True), source)
    assert len(binarised) == 2 and about(output)["origin"]["sha256"]["a.en"] != digest


# ---- what is refused, with nothing left behind


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        ("val.de", GERMAN, r"val\.en has 2 lines and .*val\.de has 3: line 3 of val\.de"),
        ("test.en", [ENGLISH[0], ""], r"test\.en, line 2: must not be empty"),
        ("test.en", [ENGLISH[0], "a " * 1024], r"test\.en, line 2: 1024 subwords, but .* 1023"),
        ("val.en", [], r"val\.en has 0 lines and .*val\.de has 2"),
    ],
)
def test_wrong_text_leaves_nothing(file, lines, message, raw, tmp_path, binarised):
    write_lines(raw / file, lines)
    output = tmp_path / "data" / "pair"
    with pytest.raises(DataError, match=message):
        prepare_files(raw, output, LANGUAGES, SETTINGS, NAMES)
    assert left_in(output.parent) == []
    assert binarised == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--src", "xx"], "--src must be one of"),
        (["--tgt", "en"], "--src and --tgt must differ, but both are 'en'"),
        (["--tgt", "fr"], "does not hold train.fr, valid.fr or val.fr or dev.fr, test.fr (pl"),
        (["--test-prefix", "test_2016"], "does not hold test_2016.en"),
        (["--merges", "3"], "--merges must be at least 16, but is 3"),
        (["--workers", "0"], "--workers must be at least 1, but is 0"),
        (["--max-ratio", "0"], "--max-ratio must be at least 1, but is 0.0"),
        (["--from", "/nowhere"], "--from must be an existing folder, but is /nowhere"),
    ],
)
def test_wrong_options_are_one_line_and_a_status(words, message, raw, tmp_path, capsys):
    output = tmp_path / "data" / "pair"
    common = ["--from", str(raw), "--src", "en", "--tgt", "de", "--output", str(output)]
    assert prepare_parallel.main(["files", *common, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairseq-pe prepare mt files: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert left_in(output.parent) == []


def test_cleaning_that_keeps_nothing_is_refused(raw, tmp_path, binarised):
    settings = Settings(60, prepare_parallel.Cleaning(min_length=200, max_length=201))
    with pytest.raises(DataError, match=r"cleaning keeps no pair of train: \{'pairs': 14"):
        prepare_files(raw, tmp_path / "data" / "pair", LANGUAGES, settings, NAMES)


@pytest.mark.parametrize("split", ["train", "test"])
def test_toy_sizes(split, tmp_path):
    pairs = {"train": 5, "valid": 5, "test": 5, split: 0}
    with pytest.raises(OptionError, match=f"--{split}-pairs must be at least 1, but is 0"):
        prepare_parallel.prepare_toy(tmp_path / "toy", SETTINGS, seed=1, pairs=pairs)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prepare_parallel", "prepare mt files"),
        ("prepare_wmt14_en_de", "prepare mt wmt14"),
        ("prepare_toy_mt", "prepare toy mt"),
        ("translate", "translate"),
    ],
)
def test_scripts_hand_their_options_on(name, words, tmp_path):
    done = subprocess.run(
        [REPOSITORY / "scripts" / f"{name}.sh", "--from", "a b"],
        env=os.environ | {"PYTHON": "echo"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"-m fairseq_plugins {words} --from a b\n"
