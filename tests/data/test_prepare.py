"""Preparing data: what is refused, what is left behind, and what a second call does.

The published corpora are too large for tests, so a tiny one stands in for them: the same code
with other facts.
"""

import functools
import hashlib
import http.server
import json
import lzma
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data import binarise as data_binarise
from fairseq_plugins.data import prepare, prepare_mlm
from fairseq_plugins.data.download import download
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.published import (
    WIKITEXT_2,
    WIKITEXT_103,
    FileFacts,
    PublishedCorpus,
    RawSource,
)
from fairseq_plugins.glue import prepare as prepare_glue
from fairseq_plugins.translation import prepare as prepare_translation

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = {
    "train": "the cat sat on the mat\n\nthe dog sat on the <unk>\n" * 20,
    "valid": "the bird sat\n",
    "test": "the cat sat , naïve\n\n",
}
FILES = ["dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))]
FEW = {"train": 20, "valid": 3, "test": 3}


def facts(text: str) -> FileFacts:
    data = text.encode()
    return FileFacts(
        text.count("\n"),
        len(text.split()),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder with the three plain files."""
    folder = tmp_path / "raw text"
    folder.mkdir()
    for split, text in TEXT.items():
        (folder / f"wiki.{split}.tokens").write_bytes(text.encode())
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The same in a zip, among members that nobody asked for."""
    path = tmp_path / "archive" / "tiny-v1.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("../escaped.txt", "no")
        out.writestr("/tmp/absolute-escaped.txt", "no")
        out.writestr("tiny/README", "no")
        for split, text in TEXT.items():
            out.writestr(f"tiny/wiki.{split}.tokens", text)
    return path


@pytest.fixture
def corpus(archive: Path) -> PublishedCorpus:
    return PublishedCorpus(
        name="tiny",
        url="https://example.invalid/tiny-v1.zip",
        zip_md5=hashlib.md5(archive.read_bytes()).hexdigest(),
        dictionary_size=16,  # 7 types, one of them <unk>, + 4 specials + 6 of padding
        files={split: facts(text) for split, text in TEXT.items()},
    )


@pytest.fixture
def binarised(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """In place of fairseq-preprocess, which takes seconds to start; the list counts the calls."""
    calls: list[str | None] = []

    def preprocess(work, arguments, workers):
        calls.append(arguments[arguments.index("--trainpref") + 1])
        folder = work / arguments[arguments.index("--destdir") + 1]
        folder.mkdir()
        words = "".join(f"{word} 1\n" for word in ("the", "sat", "on", "cat", "mat", "dog"))
        padding = "".join(f"madeupword{i:04d} 0\n" for i in range(6))
        (folder / "dict.txt").write_text(words + padding)
        for name in FILES[1:]:
            (folder / name).touch()
        return ["python", "-m", "fairseq_cli.preprocess"]

    monkeypatch.setattr(data_binarise, "preprocess", preprocess)
    return calls


def quiet(message: str) -> None:
    """Instead of printing progress."""


def left_in(folder: Path) -> list[str]:
    """What is in a folder, without the locks."""
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


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
    found = RawSource(source, corpus).unpack(target, quiet)
    for split, text in TEXT.items():
        assert (target / f"wiki.{split}.tokens").read_bytes() == text.encode()
        assert found[split].words == len(text.split())
    assert len(left_in(target)) == 3


def test_a_zip_writes_nowhere_else(archive, corpus, tmp_path):
    target = tmp_path / "deep" / "unpacked"
    target.mkdir(parents=True)
    RawSource(archive, corpus).unpack(target, quiet)
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
        RawSource(raw, corpus).unpack(tmp_path, quiet)


def test_articles_in_another_order_are_accepted(raw, corpus, tmp_path):
    train = replace(corpus.files["train"], sha256=None, types=7)
    corpus = replace(corpus, files=corpus.files | {"train": train})
    lines = TEXT["train"].splitlines(keepends=True)
    (raw / "wiki.train.tokens").write_text("".join(reversed(lines)))
    found = RawSource(raw, corpus).unpack(tmp_path, quiet)
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
        RawSource(raw, corpus).unpack(tmp_path, quiet)


def test_a_file_that_is_no_zip(corpus, tmp_path):
    path = tmp_path / "tiny-v1.zip"
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match="is not a readable zip"):
        RawSource(path, corpus)


# ---- downloads


class RangeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and parts of its files; `cut` ends every answer after so many bytes."""

    cut: int | None = None
    requests: list[str | None]

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        wanted = self.headers.get("Range")
        self.requests.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][: self.cut])

    def log_message(self, *args: object) -> None:
        """No log among the tests' output."""


@pytest.fixture
def served(archive: Path) -> Iterator[tuple[str, type[RangeHandler]]]:
    """The address of the zip on a local server, and its handler's settings."""
    handler = type("Handler", (RangeHandler,), {"requests": []})
    bound = functools.partial(handler, directory=str(archive.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{archive.name}", handler
        server.shutdown()
        thread.join()


def test_download_reports_and_is_not_repeated(served, archive, corpus, tmp_path):
    url, handler = served
    said: list[str] = []
    for _ in range(2):
        got = download(url, tmp_path / "got" / "tiny.zip", corpus.zip_md5, said.append)
        assert got.read_bytes() == archive.read_bytes()
    assert handler.requests == [None]
    assert "100%" in said[-1]
    assert left_in(tmp_path / "got") == ["tiny.zip"]


def test_a_broken_download_resumes(served, archive, corpus, tmp_path):
    url, handler = served
    target = tmp_path / "tiny.zip"
    handler.cut = 100
    with pytest.raises(DataError, match=r"could not be fetched .*100 of .* resumes"):
        download(url, target, corpus.zip_md5, quiet)
    assert (tmp_path / "tiny.zip.part").stat().st_size == 100
    assert not target.exists()
    handler.cut = None
    download(url, target, corpus.zip_md5, quiet)
    assert handler.requests == [None, "bytes=100-"]
    assert target.read_bytes() == archive.read_bytes()


def test_a_complete_part_needs_no_more(served, archive, corpus, tmp_path):
    (tmp_path / "tiny.zip.part").write_bytes(archive.read_bytes())
    download(served[0], tmp_path / "tiny.zip", corpus.zip_md5, quiet)
    assert (tmp_path / "tiny.zip").read_bytes() == archive.read_bytes()


def test_a_wrong_sum_names_both_and_leaves_nothing(served, archive, tmp_path):
    right = hashlib.md5(archive.read_bytes()).hexdigest()
    wrong = "0" * 32
    with pytest.raises(DataError) as raised:
        download(served[0], tmp_path / "got" / "tiny.zip", wrong, quiet)
    assert f"tiny.zip from {served[0]}: expected md5 {wrong}, found {right}" in str(raised.value)
    assert left_in(tmp_path / "got") == []


def test_an_unreachable_address_says_what_else_works(corpus, tmp_path):
    with pytest.raises(DataError, match="--from DIR or --url URL"):
        download("http://127.0.0.1:9/tiny.zip", tmp_path / "tiny.zip", corpus.zip_md5, quiet)


def test_only_http_addresses(corpus, tmp_path):
    with pytest.raises(OptionError, match="--url must begin with https:// or http://"):
        download("file:///etc/passwd", tmp_path / "tiny.zip", corpus.zip_md5, quiet)


def test_prepared_from_a_download(served, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, url=served[0])
    assert left_in(output.parent) == ["downloads", "tiny"]
    assert json.loads((output / "data.json").read_text())["origin"] == {"url": served[0]}


# ---- folders


def test_a_second_call_does_nothing(raw, corpus, tmp_path, binarised, capsys):
    output = tmp_path / "data" / "tiny"
    for _ in range(2):
        prepare.prepare_published(corpus, output, source=raw, mini_merges=16)
    assert len(binarised) == 2
    assert "tiny-mini is already there" in capsys.readouterr().out
    assert left_in(output.parent) == ["tiny", "tiny-mini"]


def test_only_what_differs_is_made_again(raw, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, source=raw, mini_merges=16)
    full = (output / "data.json").stat().st_mtime_ns
    prepare.prepare_published(corpus, output, source=raw, mini_merges=17)
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


def test_a_folder_made_by_others_is_refused(raw, corpus, tmp_path, binarised):
    output = tmp_path / "precious"
    output.mkdir()
    (output / "thesis.txt").write_text("years")
    with pytest.raises(DataError, match=r"--output .*precious exists and was not made by"):
        prepare.prepare_published(corpus, output, source=raw)
    assert (output / "thesis.txt").read_text() == "years"
    assert binarised == []


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
        prepare.prepare_toy(output, seed=seed, sentences=FEW)
        about = json.loads((output / "data.json").read_text())
        described = json.loads((output / "raw" / "corpus.json").read_text())
        assert about["request"]["seed"] == described["seed"] == seed
        for split in SPLITS:
            text = (output / "raw" / f"{split}.txt").read_bytes()
            assert about["splits"][split]["sha256"] == hashlib.sha256(text).hexdigest()
    assert len(binarised) == 2
    assert left_in(output.parent) == ["toy"]


def test_pieces_join_to_the_text_again(raw, corpus, tmp_path):
    target = tmp_path / "work"
    target.mkdir()
    found = RawSource(raw, corpus).unpack(target, quiet)
    pieces = data_binarise.split_into_pieces(target, found, merges=16)
    for split, text in TEXT.items():
        written = pieces[split].path.read_text()
        assert written.replace("@@ ", "") == text
        assert pieces[split].words == len(written.split()) >= found[split].words
        assert pieces[split].word_counts["<unk>"] == text.count("<unk>")


# ---- the commands


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
    assert status == 1
    error = capsys.readouterr().err
    assert error.startswith("prepare: error: ")
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
    assert "no interpreter at PYTHON=/nowhere/python; 'make quickstart'" in done.stderr


@pytest.mark.parametrize("name", ["toy", "wikitext2", "wikitext103"])
def test_scripts_hand_their_options_on(name, tmp_path):
    done = subprocess.run(
        [REPOSITORY / "scripts" / f"prepare_{name}.sh", "--from", "a b"],
        env=os.environ | {"PYTHON": "echo"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"-m fairseq_plugins.data.prepare {name} --from a b\n"


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
