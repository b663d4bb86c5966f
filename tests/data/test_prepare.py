"""Preparing data: what is refused, what is left behind, and what a second call does.

The published corpora are too large for tests, so a tiny one stands in for them: the same code
with other facts.
"""

import errno
import hashlib
import json
import lzma
import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data import binarise as data_binarise
from fairseq_plugins.data import folders, prepare, prepare_mlm
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.published import (
    WIKITEXT_2,
    WIKITEXT_103,
    ExpectedFile,
    RawSource,
)
from fairseq_plugins.glue import prepare as prepare_glue
from fairseq_plugins.translation import prepare as prepare_translation
from tests.data.tiny import FEW, TEXT, left_in

REPOSITORY = Path(__file__).resolve().parents[2]


# ---- the raw files


def test_facts_of_the_published_corpora_agree():
    """<unk> is a word of the text and one of the 4 specials; sizes are padded to 8."""
    for published in (WIKITEXT_2, WIKITEXT_103):
        types = published.files["train"].types
        assert types is not None
        assert published.dictionary_size == -(-(types - 1 + 4) // 8) * 8
        assert set(published.files) == set(SPLITS)
    assert WIKITEXT_103.dictionary_size == 267_744
    assert WIKITEXT_2.files["train"].types == 33_278 - 1


@pytest.mark.parametrize("form", ["plain", "xz", "zip in folder", "zip"])
def test_every_form_gives_the_same_files(form, raw, archive, corpus, tmp_path):
    source = raw
    if form == "xz":
        for path in list(raw.iterdir()):
            path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
            path.unlink()
    elif form != "plain":
        source = archive.parent if form == "zip in folder" else archive
    target = tmp_path / "unpacked"
    target.mkdir()
    found = RawSource(source, corpus).unpack(target)
    for split, text in TEXT.items():
        assert (target / f"wiki.{split}.tokens").read_bytes() == text.encode()
        assert found[split].words == len(text.split())
    assert len(left_in(target)) == 3


def test_a_zip_writes_nowhere_else(archive, corpus, tmp_path):
    target = tmp_path / "deep" / "unpacked"
    target.mkdir(parents=True)
    RawSource(archive, corpus).unpack(target)
    assert left_in(target) == sorted(f"wiki.{split}.tokens" for split in SPLITS)
    assert left_in(target.parent) == ["unpacked"]
    assert not Path("/tmp/absolute-escaped.txt").exists()


def test_missing_splits_are_named(raw, corpus):
    (raw / "wiki.train.tokens").unlink()
    (raw / "wiki.test.tokens").unlink()
    with pytest.raises(DataError) as raised:
        RawSource(raw, corpus).require()
    message = str(raised.value)
    assert "does not hold wiki.train.tokens, wiki.test.tokens" in message
    assert "wiki.valid.tokens" not in message


def test_a_location_that_is_not_there(corpus, tmp_path):
    with pytest.raises(DataError, match="--from must be an existing folder or zip, but is"):
        RawSource(tmp_path / "nowhere", corpus)


def test_a_wrong_file_is_named_with_expected_and_found(raw, corpus, tmp_path, binarised):
    wrong = TEXT["valid"].replace("bird", "fish")
    (raw / "wiki.valid.tokens").write_text(wrong)
    output = tmp_path / "data" / "tiny"
    with pytest.raises(DataError) as raised:
        prepare.prepare_published(corpus, output, source=raw)
    expected, found = (hashlib.sha256(t.encode()).hexdigest() for t in (TEXT["valid"], wrong))
    assert "wiki.valid.tokens is not the published file" in str(raised.value)
    assert f"sha256: expected {expected}, found {found}" in str(raised.value)
    assert left_in(output.parent) == []
    assert binarised == []


def test_a_shortened_file_is_told_by_its_counts(raw, corpus, tmp_path):
    """A training file, whose hash is not fixed, is held to its sizes."""
    train = replace(corpus.files["train"], sha256=None, types=7)
    corpus = replace(corpus, files=corpus.files | {"train": train})
    (raw / "wiki.train.tokens").write_text("the cat sat\n")
    with pytest.raises(DataError, match="lines: expected 60, found 1; words: expected 240, "):
        RawSource(raw, corpus).unpack(tmp_path)


def test_articles_in_another_order_are_accepted(raw, corpus, tmp_path):
    train = replace(corpus.files["train"], sha256=None, types=7)
    corpus = replace(corpus, files=corpus.files | {"train": train})
    lines = TEXT["train"].splitlines(keepends=True)
    (raw / "wiki.train.tokens").write_text("".join(reversed(lines)))
    found = RawSource(raw, corpus).unpack(tmp_path)
    assert found["train"].types == 7


@pytest.mark.parametrize("damage", ["cut xz", "not xz", "not text"])
def test_damaged_files_are_named(damage, raw, corpus, tmp_path):
    path = raw / "wiki.test.tokens"
    if damage == "not text":
        path.write_bytes(b"\xff\xfe\n")
    else:
        packed = lzma.compress(path.read_bytes())[:-20] if damage == "cut xz" else b"no"
        path.with_name(path.name + ".xz").write_bytes(packed)
        path.unlink()
    with pytest.raises(DataError, match=r"wiki\.test\.tokens.* is damaged"):
        RawSource(raw, corpus).unpack(tmp_path)


def test_a_file_that_is_no_zip(corpus, tmp_path):
    path = tmp_path / "tiny-v1.zip"
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match="is not a readable zip"):
        RawSource(path, corpus)


# ---- folders


@pytest.mark.parametrize("merges", [None, 16])
def test_a_carriage_return_ends_no_line(merges, raw, corpus, tmp_path, binarised, monkeypatch):
    """fairseq-preprocess reads as many lines as there are, whose words it separates."""
    text = "the\rcat sat\non the mat\r\n\r\n\r\r\n" * 20
    (raw / "wiki.train.tokens").write_bytes(text.encode())
    train = ExpectedFile(text.count("\n"))
    corpus = replace(corpus, files=corpus.files | {"train": train})
    seen = []
    fake = data_binarise.preprocess

    def preprocess(work, arguments, workers):
        path = work / arguments[arguments.index("--trainpref") + 1]
        seen.append([line.replace("@@ ", "").split() for line in path.open()])
        return fake(work, arguments, workers)

    monkeypatch.setattr(data_binarise, "preprocess", preprocess)
    prepare.prepare_published(corpus, tmp_path / "tiny", source=raw, mini_merges=merges)
    words = [line.split() for line in text.split("\n")[:-1]]
    assert seen == [words] * (1 if merges is None else 2)
    about = json.loads((tmp_path / "tiny" / "data.json").read_text())
    assert about["raw"]["train"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_a_second_call_does_nothing(raw, corpus, tmp_path, binarised, capsys):
    output = tmp_path / "data" / "tiny"
    for _ in range(2):
        prepare.prepare_published(corpus, output, source=raw, mini_merges=16)
    assert len(binarised) == 2
    assert f"tiny-mini is already there, made --from {raw.name};" in capsys.readouterr().out
    assert left_in(output.parent) == ["tiny", "tiny-mini"]


def test_only_what_differs_is_made_again(raw, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, source=raw, mini_merges=16)
    full = (output / "data.json").stat().st_mtime_ns
    with pytest.raises(DataError, match=r"tiny-mini has other data \(merges is 16, not 17\)"):
        prepare.prepare_published(corpus, output, source=raw, mini_merges=17)
    prepare.prepare_published(corpus, output, source=raw, mini_merges=17, force=True)
    assert len(binarised) == 3
    assert (output / "data.json").stat().st_mtime_ns == full
    (output / "test.idx").unlink()
    prepare.prepare_published(corpus, output, source=raw, mini_merges=17)
    assert len(binarised) == 4
    assert (output / "test.idx").exists()


def test_a_failed_build_leaves_the_old_folder(raw, corpus, tmp_path, binarised, monkeypatch):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, source=raw)
    before = (output / "data.json").read_text()
    (output / "test.idx").unlink()

    def fail(*args: object) -> None:
        raise subprocess.CalledProcessError(1, "fairseq-preprocess", output="no space")

    monkeypatch.setattr(data_binarise, "preprocess", fail)
    with pytest.raises(subprocess.CalledProcessError):
        prepare.prepare_published(corpus, output, source=raw)
    assert (output / "data.json").read_text() == before
    assert left_in(output.parent) == ["tiny"]


def test_what_a_killed_build_left_is_cleared(raw, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    (output.parent / ".tiny.building" / "raw").mkdir(parents=True)
    prepare.prepare_published(corpus, output, source=raw)
    assert left_in(output.parent) == ["tiny"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_followed_and_stays(is_there, tmp_path, binarised):
    target, link = tmp_path / "disk" / "data", tmp_path / "link"
    (target if is_there else target.parent).mkdir(parents=True)
    link.symlink_to(target, target_is_directory=True)
    for seed in (1, 2):
        prepare.prepare_toy(link, seed=seed, sentences=FEW, force=True)
        assert link.is_symlink() and (target / "data.json").is_file()
        assert left_in(target.parent) == ["data"]


def test_a_full_disk_is_named(tmp_path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as of writing to an open file
    with pytest.raises(OSError, match=r"toy'$"), folders.staging_folder(tmp_path / "toy"):
        raise full
    with pytest.raises(ConnectionError, match=r"^ended$"), folders.staging_folder(tmp_path / "toy"):
        raise ConnectionError("ended")


def test_a_folder_made_by_others_is_refused(raw, corpus, tmp_path, binarised):
    output = tmp_path / "precious"
    output.mkdir()
    (output / "thesis.txt").write_text("years")
    with pytest.raises(DataError, match=r"--output .*precious exists and was not made by"):
        prepare.prepare_published(corpus, output, source=raw)
    assert (output / "thesis.txt").read_text() == "years"
    assert binarised == []


def test_a_folder_that_another_process_makes_meanwhile_is_kept(tmp_path, binarised, monkeypatch):
    output, stage = tmp_path / "toy", folders.staging_folder

    @contextmanager
    def late(path, resume=None):
        with stage(path, resume) as work:
            output.mkdir()
            (output / "data.json").write_text('{"request": {"corpus": "other"}}')
            yield work

    monkeypatch.setattr(folders, "staging_folder", late)
    with pytest.raises(DataError, match=r"has other data \(corpus is other, not "):
        prepare.prepare_toy(output, seed=1, sentences=FEW)
    assert binarised == [] and left_in(output) == ["data.json"]


def test_a_dictionary_of_another_size_is_refused(raw, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    with pytest.raises(DataError, match="dictionary: expected 24 symbols, found 16"):
        prepare.prepare_published(replace(corpus, dictionary_size=24), output, source=raw)
    assert left_in(output.parent) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers must be at least 1, but is 0"),
        ({"mini_merges": 3}, "--mini-merges must be at least 16, but is 3"),
    ],
)
def test_numbers_out_of_range(options, message, raw, corpus, tmp_path, binarised):
    with pytest.raises(OptionError, match=message):
        prepare.prepare_published(corpus, tmp_path / "tiny", source=raw, **options)
    assert binarised == []


def test_data_json_holds_no_path_of_the_machine(raw, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, source=raw, mini_merges=16)
    for folder in (output, output.with_name("tiny-mini")):
        text = (folder / "data.json").read_text()
        assert str(tmp_path) not in text
        assert json.loads(text)["origin"] == {"from": "raw text"}


def test_toy_folder_keeps_its_text_and_is_made_once(tmp_path, binarised):
    output = tmp_path / "data" / "toy"
    for seed in (1, 1, 2):
        prepare.prepare_toy(output, seed=seed, sentences=FEW, force=seed == 2)
        about = json.loads((output / "data.json").read_text())
        described = json.loads((output / "raw" / "corpus.json").read_text())
        assert about["request"]["seed"] == described["seed"] == seed
        for split in SPLITS:
            text = (output / "raw" / f"{split}.txt").read_bytes()
            assert about["splits"][split]["sha256"] == hashlib.sha256(text).hexdigest()
    assert len(binarised) == 2
    with pytest.raises(DataError, match=r"toy has other data \(seed is 2, not 1\)"):
        prepare.prepare_toy(output, seed=1, sentences=FEW)
    assert left_in(output.parent) == ["toy"]


def test_pieces_join_to_the_text_again(raw, corpus, tmp_path):
    target = tmp_path / "work"
    target.mkdir()
    found = RawSource(raw, corpus).unpack(target)
    pieces = data_binarise.split_into_subwords(target, found, merges=16)
    for split, text in TEXT.items():
        written = pieces[split].path.read_text()
        assert written.replace("@@ ", "") == text
        assert pieces[split].words == len(written.split()) >= found[split].words
        assert pieces[split].word_counts["<unk>"] == text.count("<unk>")


# ---- the commands


@pytest.mark.slow
def test_fairseq_reads_what_was_made(raw, corpus, tmp_path):
    """The one test that runs fairseq-preprocess itself."""
    from fairseq.data import Dictionary, data_utils

    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, source=raw)
    dictionary = Dictionary.load(str(output / "dict.txt"))
    about = json.loads((output / "data.json").read_text())
    assert len(dictionary) == about["dictionary_size"] == 16
    for split, text in TEXT.items():
        dataset = data_utils.load_indexed_dataset(str(output / split), dictionary)
        assert len(dataset) == text.count("\n")
        tokens = [int(token) for line in dataset for token in line]
        assert len(tokens) == len(text.split()) + text.count("\n")
        assert tokens.count(dictionary.unk()) == about["splits"][split]["unknown_words"]
    assert about["splits"]["valid"]["unknown_words"] == 1  # bird


def test_errors_are_one_line_and_a_status(tmp_path, capsys):
    status = prepare.main(
        ["wikitext103", "--output", str(tmp_path / "out"), "--from", str(tmp_path)]
    )
    assert status == 2
    error = capsys.readouterr().err
    assert error.startswith("fairseq-pe prepare lm wikitext103: error: ")
    assert "wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens" in error
    assert error.count("\n") == 1
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("name", ["toy", "wikitext2", "wikitext103"])
def test_scripts_without_an_interpreter_say_what_sets_one_up(name):
    done = subprocess.run(
        [REPOSITORY / "scripts" / f"prepare_{name}.sh"],
        env=os.environ | {"PYTHON": "/nowhere/python"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no interpreter at PYTHON=/nowhere/python; 'make setup'" in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [("toy", "toy"), ("wikitext2", "lm wikitext2"), ("wikitext103", "lm wikitext103")],
)
def test_scripts_hand_their_options_on(name, words, tmp_path):
    done = subprocess.run(
        [REPOSITORY / "scripts" / f"prepare_{name}.sh", "--from", "a b"],
        env=os.environ | {"PYTHON": "echo"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"-m fairseq_plugins prepare {words} --from a b\n"


@pytest.mark.parametrize(
    ("module", "words", "folder"),
    [
        (prepare, ["toy"], "toy"),
        (prepare, ["wikitext2"], "wikitext-2"),
        (prepare, ["wikitext103"], "wikitext-103"),
        (prepare_mlm, ["gpt2_bpe"], "gpt2_bpe"),
        (prepare_mlm, ["text", "--from", "x"], "text-mlm"),
        (prepare_mlm, ["wikitext103"], "wikitext-103-mlm"),
        (prepare_mlm, ["toy"], "toy-mlm"),
        (prepare_glue, ["--bpe", "x"], "glue"),
        (prepare_translation, ["wmt14"], "wmt14-en-de"),
        (prepare_translation, ["toy"], "toy-mt"),
    ],
)
def test_data_goes_to_the_repository_from_any_folder(module, words, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert module.get_parser().parse_args(words).output == REPOSITORY / "data" / folder


@pytest.mark.parametrize("corpus", ["wikitext2", "wikitext103"])
def test_help_shows_every_option(corpus, capsys):
    with pytest.raises(SystemExit, match="0"):
        prepare.main([corpus, "--help"])
    shown = capsys.readouterr().out
    for option in ("--from DIR", "--url URL", "--output DIR", "--workers N"):
        assert option in shown
    assert ("--mini-merges N" in shown) == (corpus == "wikitext2")
