"""Preparing data for masked language models: fairseq's own output, token for token."""

import contextlib
import hashlib
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.examples.roberta import multiprocessing_bpe_encoder
from fairseq_cli import preprocess

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data import mlm_folders, prepare_mlm
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.gpt2_bpe import FILES, learn_gpt2_bpe
from fairseq_plugins.data.prepare_gpt2_bpe import prepare_tokenizer
from fairseq_plugins.data.published import ExpectedFile, PublishedCorpus
from tests.preprocessing import preprocess_here

TEXT = {
    "train": " = Title = \n\nThe café's cat sat; the dog , too .\n  twice   spaced\n\n" * 4,
    "valid": "日本 cats\u2028and\x0bdogs\n\n\n\tthe end\n",
    "test": "a bird\r\n\nno line feed at the end",
}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    learn_gpt2_bpe(TEXT["train"].splitlines(), 30, folder)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for split, text in TEXT.items():
        (folder / f"{split}.txt").write_bytes(text.encode())
    return folder


@contextlib.contextmanager
def command_line(*words: str) -> Iterator[None]:
    before, sys.argv = sys.argv, list(words)
    try:
        yield
    finally:
        sys.argv = before


def tokens(folder: Path, split: str) -> list[np.ndarray]:
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    assert dataset is not None
    return [dataset[i].numpy() for i in range(len(dataset))]


def test_it_is_fairseqs_own_output(source: Path, pieces: Path, tmp_path: Path) -> None:
    """Of its multiprocessing_bpe_encoder and fairseq-preprocess on the same files."""
    words = ["text", "--from", str(source), "--bpe", str(pieces), "--output", str(tmp_path / "a")]
    with preprocess_here():
        assert prepare_mlm.main(words) == 0
    ours = tmp_path / "a"
    names = ["--encoder-json", str(pieces / "encoder.json"), "--vocab-bpe"]
    names += [str(pieces / "vocab.bpe"), "--keep-empty", "--workers", "1"]
    inputs = [str(source / f"{split}.txt") for split in SPLITS]
    for split, path in zip(SPLITS, inputs, strict=True):
        into = ["--inputs", path, "--outputs", str(tmp_path / f"{split}.bpe")]
        with command_line("multiprocessing_bpe_encoder", *names, *into):
            multiprocessing_bpe_encoder.main()
    words = ["--only-source", "--srcdict", str(pieces / "dict.txt"), "--workers", "1"]
    for split in SPLITS:
        words += [f"--{split}pref", str(tmp_path / f"{split}.bpe")]
    with command_line("fairseq-preprocess", *words, "--destdir", str(tmp_path / "theirs")):
        preprocess.cli_main()
    assert (ours / "dict.txt").read_bytes() == (tmp_path / "theirs" / "dict.txt").read_bytes()
    unknown = Dictionary.load(str(ours / "dict.txt")).unk()
    for split in SPLITS:
        expected, actual = tokens(tmp_path / "theirs", split), tokens(ours, split)
        assert len(expected) == len(actual) > 2
        for one, other in zip(expected, actual, strict=True):
            assert one.tolist() == other.tolist()
            assert unknown not in other
        for suffix in ("bin", "idx"):
            name = f"{split}.{suffix}"
            assert (ours / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    for name in FILES:
        assert (ours / "bpe" / name).read_bytes() == (pieces / name).read_bytes()


@pytest.fixture
def binarised(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In place of fairseq-preprocess, which takes seconds to start; the list counts the calls."""
    calls: list[Path] = []

    def preprocess(work, arguments, workers):
        calls.append(work)
        given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        folder = work / given["--destdir"]
        folder.mkdir()
        (folder / "dict.txt").write_bytes((work / given["--srcdict"]).read_bytes())
        for split in SPLITS:
            text = (work / given[f"--{split}pref"]).read_bytes()
            for suffix in ("bin", "idx"):
                (folder / f"{split}.{suffix}").write_bytes(text)
        return ["python", "-m", "fairseq_cli.preprocess"]

    monkeypatch.setattr("fairseq_plugins.data.binarise.preprocess", preprocess)
    return calls


def left_in(folder: Path) -> list[str]:
    """What is in a folder, without the locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def prepared(output: Path, source: Path, **options: Any) -> dict[str, Any]:
    given = {"chosen": {}, "tokenizer": None, "merges": 20, **options}
    prepare_mlm.prepare_text(output, source, **given)
    return json.loads((output / "data.json").read_text())


def test_learned_pieces_are_kept_and_a_second_call_does_nothing(
    source: Path, binarised: list[Path], tmp_path: Path
) -> None:
    about = prepared(tmp_path / "out", source)
    assert about["request"]["merges"] == 20
    assert about["splits"]["valid"]["unknown_words"] == 0
    assert about["splits"]["train"]["lines"] == TEXT["train"].count("\n")
    assert prepared(tmp_path / "out", source) == about
    assert len(binarised) == 1
    with pytest.raises(DataError, match=r"out has other data \(merges is 20, not 10\); .* --force"):
        prepared(tmp_path / "out", source, merges=10)
    assert prepared(tmp_path / "out", source, merges=10, force=True)["request"]["merges"] == 10
    again = tmp_path / "again"
    reused = prepared(again, source, tokenizer=tmp_path / "out" / "bpe", merges=None)
    assert reused["splits"] == json.loads((tmp_path / "out/data.json").read_text())["splits"]
    (tmp_path / "out" / "bpe" / "vocab.bpe").unlink()
    prepared(tmp_path / "out", source, merges=10)
    assert len(binarised) == 4
    assert left_in(tmp_path) == ["again", "out"]


def test_the_same_text_is_prepared_anew_by_another_version(
    source: Path, binarised: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = prepared(tmp_path / "out", source)
    monkeypatch.setattr(mlm_folders, "PREPARATION_VERSION", 0)
    assert prepared(tmp_path / "out", source)["splits"] == about["splits"]
    assert len(binarised) == 2
    with pytest.raises(DataError, match=r"has other data \(merges is 20, not 10\)"):
        prepared(tmp_path / "out", source, merges=10)


def test_other_text_replaces_nothing_unless_forced(binarised, tmp_path, capsys) -> None:
    folder, output = tmp_path / "texts", tmp_path / "out"
    (folder / "more").mkdir(parents=True)
    (folder / "more" / "a.txt").touch()
    words = ["text", "--from", str(folder), "--merges", "9", "--output", str(output)]
    (folder / "train.txt").write_text("a cat\n\na dog\n\na bird\n")
    assert prepare_mlm.main(words) == 0
    assert "prepare: not used: more/\n" in capsys.readouterr().out
    before = (output / "data.json").read_text()
    (folder / "train.txt").write_text("a cat\n\na dog\n\na fish\n")
    assert prepare_mlm.main(words) == 2
    assert "out has other data (other files: train); give" in capsys.readouterr().err
    assert (output / "data.json").read_text() == before
    assert prepare_mlm.main([*words, "--force"]) == 0
    assert (output / "data.json").read_text() != before
    (output / "data.json").write_text("{")
    assert prepare_mlm.main(words) == 2
    assert "its data.json is damaged" in capsys.readouterr().err
    assert left_in(tmp_path) == ["out", "texts"]


def test_lines_of_train_in_other_splits_are_told(binarised, tmp_path, capsys) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text("a cat\na dog\n\na bird\n")
    (folder / "valid.txt").write_text("\na dog\r\nno\n a dog\n\nyes")
    (folder / "test.txt").write_text("a fish\n\n")
    about = prepared(tmp_path / "out", folder)
    assert about["seen_lines"] == {"valid": 50.0, "test": 0.0}
    said = "prepare: lines that also occur in train: 50% of valid, 0% of test\n"
    assert said in capsys.readouterr().out
    (folder / "valid.txt").write_text("no\n")
    prepared(tmp_path / "other", folder)
    assert "lines that" not in capsys.readouterr().out


def test_workers_change_nothing(source: Path, binarised: list[Path], tmp_path: Path) -> None:
    one = prepared(tmp_path / "one", source, workers=1)
    assert prepared(tmp_path / "two", source, workers=2)["splits"] == one["splits"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merges": 0}, "--merges must be at least 1, but is 0"),
        ({"workers": 0}, "--workers must be at least 1, but is 0"),
        ({"held_out": 50.0}, "--held-out must be between 0 and 50 per cent, but is 50"),
        ({"evaluation_lines": 0}, "--evaluation-lines must be at least 1, but is 0"),
        ({"tokenizer": Path("nowhere"), "merges": None}, "nowhere does not hold encoder.json"),
        ({"chosen": {"train": ["gone.txt"]}}, "--train: .* does not hold gone.txt"),
    ],
)
def test_wrong_options_write_nothing(options, message, source, binarised, tmp_path) -> None:
    with pytest.raises((DataError, OptionError), match=message):
        prepared(tmp_path / "out", source, **options)
    assert left_in(tmp_path) == []
    assert binarised == []


def test_wrong_text_is_named_with_its_line_and_leaves_nothing(source, binarised, tmp_path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_bytes(b"fine\n\nfine\n\nalso\xff\n")
    with pytest.raises(DataError, match=r"train\.txt, line 5: is not UTF-8"):
        prepared(tmp_path / "out", folder)
    (folder / "train.txt").write_text("a\n")
    (folder / "valid.txt").write_text("\n\n")
    (folder / "test.txt").write_text("a\n")
    with pytest.raises(DataError, match="the valid split has no text"):
        prepared(tmp_path / "out", folder)
    assert left_in(tmp_path) == ["texts"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(DataError, match="was not made by this command"):
        prepared(tmp_path / "out", source)
    assert left_in(tmp_path / "out") == ["mine.txt"]


# ---- GPT-2's pieces


@pytest.fixture
def sums(pieces: Path) -> dict[str, str]:
    return {name: hashlib.sha256((pieces / name).read_bytes()).hexdigest() for name in FILES}


@pytest.mark.parametrize("form", ["plain", "xz"])
def test_published_pieces(form: str, pieces: Path, sums: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    for name in FILES:
        content = (pieces / name).read_bytes()
        if form == "xz":
            (folder / f"{name}.xz").write_bytes(lzma.compress(content))
        else:
            (folder / name).write_bytes(content)
    for _ in range(2):
        prepare_tokenizer(tmp_path / "out", folder, sums=sums)
    assert left_in(tmp_path / "out") == sorted(FILES)
    assert left_in(tmp_path) == ["from", "out"]


def test_other_pieces_are_refused(pieces: Path, sums: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    with pytest.raises(DataError, match=r"does not hold encoder\.json, vocab\.bpe, dict\.txt"):
        prepare_tokenizer(tmp_path / "out", folder, sums=sums)
    for name in FILES:
        (folder / name).write_bytes((pieces / name).read_bytes())
    (folder / "dict.txt").write_text("0 1\n")
    wrong = f"dict.txt in .* is not the published file: sha256: expected {sums['dict.txt']}"
    with pytest.raises(DataError, match=wrong):
        prepare_tokenizer(tmp_path / "out", folder, sums=sums)
    (folder / "dict.txt").unlink()
    (folder / "dict.txt.xz").write_bytes(b"no")
    with pytest.raises(DataError, match=r"from/dict\.txt\.xz is damaged"):
        prepare_tokenizer(tmp_path / "out", folder, sums=sums)
    assert left_in(tmp_path) == ["from"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(DataError, match=r"encoder\.json is not the published one"):
        prepare_tokenizer(tmp_path / "out", pieces, sums=sums)


# ---- WikiText-103


def tiny(suffix: str) -> PublishedCorpus:
    lines = {split: len(text.encode().splitlines()) for split, text in TEXT.items()}
    return PublishedCorpus(
        name=f"tiny-{suffix}",
        url="https://example.invalid/tiny.zip",
        zip_md5=None,
        dictionary_size=None,
        files={split: ExpectedFile(count) for split, count in lines.items()},
        suffix=suffix,
    )


def test_raw_text_is_preferred_to_words(pieces: Path, binarised, tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    options = {"url": None, "corpora": (tiny("raw"), tiny("tokens")), "dictionary_size": None}

    def made(name: str) -> str:
        output = tmp_path / name
        prepare_mlm.prepare_wikitext103(output, pieces, source=folder, **options)
        return json.loads((output / "data.json").read_text())["request"]["corpus"]

    with pytest.raises(DataError, match=r"wiki\.train\.raw.*nor.*wiki\.train\.tokens"):
        made("a")
    for suffix in ("tokens", "raw"):
        for split, text in TEXT.items():
            (folder / f"wiki.{split}.{suffix}").write_bytes(text.encode())
        assert made(suffix) == f"tiny-{suffix}"
    (folder / "wiki.valid.raw").write_text("cut\n")
    with pytest.raises(DataError, match=r"wiki\.valid\.raw is not the published file: lines"):
        made("b")
    options["dictionary_size"] = 50_264
    (folder / "wiki.valid.raw").write_bytes(TEXT["valid"].encode())
    with pytest.raises(DataError, match="dictionary: expected 50264 symbols, found"):
        made("c")
    assert left_in(tmp_path) == ["from", "raw", "tokens"]


def test_the_embedded_corpus(binarised, tmp_path: Path) -> None:
    few = [f"--{split}-sentences={count}" for split, count in zip(SPLITS, (20, 3, 3), strict=True)]
    words = ["toy", "--output", str(tmp_path / "toy"), "--merges", "40", *few]
    assert prepare_mlm.main(words) == 0
    about = json.loads((tmp_path / "toy" / "data.json").read_text())
    assert about["splits"]["valid"]["lines"] == 3
    assert (tmp_path / "toy" / "bpe" / "encoder.json").is_file()
