"""Preparing GLUE: token for token what fairseq's own tools make, and what is refused."""

import functools
import http.server
import json
import random
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.examples.roberta import multiprocessing_bpe_encoder
from fairseq_cli import preprocess

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe
from fairseq_plugins.glue import official
from fairseq_plugins.glue.prepare import Options, find_files, main, prepare
from fairseq_plugins.glue.prepare_generated import order, place, write_tasks
from fairseq_plugins.glue.read import Example, SplitText
from fairseq_plugins.glue.sampling import hold_out
from fairseq_plugins.glue.tasks import TASKS
from fairseq_plugins.glue.write import kept_tokens

ENTAILMENT = ("entailment", "not_entailment")
PAIRS = [
    (f'"The {word} of {i} naïve  cats ', f" can't (not) be {i}.", ENTAILMENT[i % 3 == 0])
    for i, word in enumerate(["house", "garden", "", "horse", "river", "ﬁeld", "house", "sea"])
]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bpe")
    learn_gpt2_bpe(["the house of the cats", "the garden of the house"] * 3, 20, folder)
    return folder


def write_rte(source: Path, splits=("train", "dev", "test")) -> Path:
    folder = source / "RTE"
    folder.mkdir(parents=True)
    for split in splits:
        labelled = split != "test"
        lines = ["index\tsentence1\tsentence2" + "\tlabel" * labelled]
        for i, (*sentences, label) in enumerate(PAIRS):
            lines.append("\t".join([str(i), *sentences, *[label] * labelled]))
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return source


def write_stsb(source: Path) -> Path:
    folder = source / "STS-B"
    folder.mkdir(parents=True)
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    )
    for split in ("train", "dev"):
        rows = [
            "0\ta\tb\tc\td\te\tf\tone\ttwo\t" + score for score in ("5.000", "2.2", "0.067", "0")
        ]
        (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    return source


def run(command: Callable[[], None], *words: object) -> None:
    """A command of fairseq's with these words on its line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["command", *map(str, words)])
        command()


def test_the_same_bytes_as_fairseqs_own_tools(tmp_path: Path, bpe: Path) -> None:
    """As examples/roberta/preprocess_GLUE_tasks.sh calls them, on the columns of the same file."""
    prepare([TASKS["RTE"]], tmp_path / "ours", Options(bpe), [write_rte(tmp_path / "raw")])
    columns = {"input0": 0, "input1": 1, "label": 2}
    texts = {name: "".join(f"{row[i]}\n" for row in PAIRS) for name, i in columns.items()}
    for name, text in texts.items():
        (tmp_path / f"raw.{name}").write_text(text, encoding="utf-8")
    inputs = ("input0", "input1")
    run(
        multiprocessing_bpe_encoder.main,
        *("--encoder-json", bpe / "encoder.json", "--vocab-bpe", bpe / "vocab.bpe"),
        *("--inputs", *(tmp_path / f"raw.{name}" for name in inputs)),
        *("--outputs", *(tmp_path / f"train.{name}" for name in inputs)),
        *("--workers", 1, "--keep-empty"),
    )
    shutil.copy(tmp_path / "raw.label", tmp_path / "train.label")
    for name in columns:
        dictionary = ["--srcdict", bpe / "dict.txt"] if name in inputs else []
        text = tmp_path / f"train.{name}"
        prefixes = ["--trainpref", text, "--validpref", text]
        run(
            preprocess.cli_main,
            *("--only-source", *prefixes, *dictionary, "--destdir", tmp_path / "theirs" / name),
        )
        theirs, ours = tmp_path / "theirs" / name, tmp_path / "ours" / "RTE" / name
        for file in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes(), (name, file)


def test_scores_are_text_between_0_and_1_as_awk_prints_them(tmp_path: Path, bpe: Path) -> None:
    prepare([TASKS["STS-B"]], tmp_path / "out", Options(bpe), [write_stsb(tmp_path / "raw")])
    labels = tmp_path / "out" / "STS-B" / "label"
    awk = ["awk", "{print $1 / 5.0 }"]
    expected = subprocess.run(awk, input="5.000\n2.2\n0.067\n0\n", capture_output=True, text=True)
    assert (labels / "train.label").read_text() == expected.stdout == "1\n0.44\n0.0134\n0\n"


def test_a_sample_of_both_sets_is_recorded_and_repeats(tmp_path: Path, bpe: Path) -> None:
    source = write_rte(tmp_path / "raw")

    def make(name: str, seed: int) -> tuple[bytes, dict]:
        prepare([TASKS["RTE"]], tmp_path / name, Options(bpe, 5, 4, seed=seed), [source])
        made = tmp_path / name / "RTE"
        about = json.loads((made / "data.json").read_text())
        return (made / "input0" / "train.bin").read_bytes(), about

    first, about = make("a", 2)
    asked = about["request"]
    assert (asked["max_train"], asked["max_valid"], asked["seed"]) == (5, 4, 2)
    counts = {name: split["examples"] for name, split in about["splits"].items()}
    assert counts == {"train": 5, "valid": 4, "test": len(PAIRS)}
    assert make("b", 2)[0] == first
    assert any(make(f"c{seed}", seed)[0] != first for seed in (3, 4))
    assert str(tmp_path) not in json.dumps(about)


@pytest.mark.parametrize(
    ("lengths", "room", "kept"),
    [
        ([3], 5, [3]),
        ([7], 5, [5]),
        ([9, 2], 6, [4, 2]),
        ([2, 9], 6, [2, 4]),
        ([9, 9], 5, [3, 2]),
        ([1, 4], 5, [1, 4]),
        ([0, 9], 5, [0, 5]),
    ],
)
def test_the_longer_sentence_is_cut_first_as_in_bert(lengths, room, kept):
    assert kept_tokens(lengths, room) == kept
    rest = list(lengths)
    while sum(rest) > room:  # run_classifier.py, _truncate_seq_pair
        rest[0 if len(rest) == 1 or rest[0] > rest[1] else 1] -= 1
    assert rest == kept


def test_a_part_of_the_training_set_is_held_out(tmp_path: Path, bpe: Path) -> None:
    """Training and held-out examples are those of the whole set, each once."""
    source, count = write_rte(tmp_path / "raw"), len(PAIRS) // 3

    def make(name: str, **options: int) -> tuple[list[str], list[str], dict]:
        prepare([TASKS["RTE"]], tmp_path / name, Options(bpe, **options), [source])
        made = tmp_path / name / "RTE"
        found = []
        for split in ("train", "held_out"):
            parts = [
                data_utils.load_indexed_dataset(str(made / part / split)) or ()
                for part in ("input0", "input1", "label")
            ]
            found.append([str([x.tolist() for x in one]) for one in zip(*parts, strict=True)])
        return *found, json.loads((made / "data.json").read_text())

    whole, nothing, _ = make("whole")
    train, held_out, about = make("parts", held_out=count)
    assert not nothing and len(held_out) == count
    assert sorted(train + held_out) == sorted(whole)
    assert about["request"]["held_out"] == about["splits"]["held_out"]["examples"] == count
    assert make("again", held_out=count)[1] == held_out
    assert any(make(f"s{seed}", held_out=count, seed=seed)[1] != held_out for seed in (2, 3, 4))


def test_first_sentences_of_the_held_out_part_are_not_in_the_disjoint_training_set(
    tmp_path: Path, bpe: Path
) -> None:
    folder = tmp_path / "raw" / "RTE"
    folder.mkdir(parents=True)
    header = "index\tsentence1\tsentence2\tlabel"
    for split, count in (("train", 30), ("dev", 3)):
        lines = [
            f"{i}\tthe {split} {i // 2}\tthe cat {i}\t{ENTAILMENT[i % 2]}" for i in range(2 * count)
        ]
        (folder / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    options = Options(bpe, held_out=10, disjoint=True)
    prepare([TASKS["RTE"]], tmp_path / "out", options, [tmp_path / "raw"])
    about = json.loads((tmp_path / "out" / "RTE" / "data.json").read_text())
    assert about["seen_first_sentences"] == {"valid": 0.0, "held_out": 0.0}
    splits = about["splits"]
    assert splits["held_out"]["examples"] == 10 and 40 <= splits["train"]["examples"] < 50


@pytest.mark.parametrize("seed", range(20))
def test_every_class_keeps_an_example_to_train_on(seed: int) -> None:
    classes = [str(i) for i in range(30)]
    examples = tuple(Example((f"{label} {i}",), label) for label in classes for i in range(2))
    parts = hold_out(SplitText("x", "", examples, 0), 20, str(seed), classes)
    assert {one.label for one in parts["train"].examples} == {*classes}
    assert sorted(map(str, (*parts["train"].examples, *parts["held_out"].examples))) == sorted(
        map(str, examples)
    )
    assert len(parts["held_out"].examples) == 20


def test_more_held_out_than_there_is_are_refused(tmp_path: Path, bpe: Path) -> None:
    source = write_rte(tmp_path / "raw")
    with pytest.raises(OptionError, match=r"--held-out must be below the 5 .*, but is 5"):
        prepare([TASKS["RTE"]], tmp_path / "out", Options(bpe, 5, held_out=5), [source])
    with pytest.raises(OptionError, match=r"--held-out must be at least 2"):
        prepare([TASKS["RTE"]], tmp_path / "out", Options(bpe, held_out=1), [source])
    assert not (tmp_path / "out").exists()


def test_a_second_call_does_nothing_and_another_request_does(
    tmp_path: Path, bpe: Path, capsys: pytest.CaptureFixture
) -> None:
    source, out = write_rte(tmp_path / "raw"), tmp_path / "out"
    words = ["--bpe", str(bpe), "--from", str(source), "--output", str(out), "--tasks", "RTE"]
    assert main(words) == 0
    made = (out / "RTE" / "data.json").stat().st_mtime_ns
    assert main(words) == 0
    assert "already there" in capsys.readouterr().out
    assert (out / "RTE" / "data.json").stat().st_mtime_ns == made
    (out / "RTE" / "input1" / "test.bin").unlink()
    assert main(words) == 0
    assert (out / "RTE" / "input1" / "test.bin").is_file()
    assert main([*words, "--max-train", "6"]) == 2
    assert "has other data (max_train is unset, not 6)" in capsys.readouterr().err
    assert main([*words, "--max-train", "6", "--force"]) == 0
    about = json.loads((out / "RTE" / "data.json").read_text())
    splits = about["splits"]
    assert splits["train"]["examples"] == 6
    assert "shared words" in about["floors"]["valid"]
    assert about["seen_first_sentences"] == {"valid": 100 * 6 / len(PAIRS)}
    assert splits["valid"]["examples"] == len(PAIRS)  # whole, where nothing is said of it


def test_missing_splits_are_named(tmp_path: Path, bpe: Path, capsys: pytest.CaptureFixture) -> None:
    """A task comes from one folder alone; what nobody asked for by name may be absent."""
    half, whole = write_rte(tmp_path / "half", ("dev", "test")), tmp_path / "whole"
    write_rte(whole, ("train", "dev"))
    words = ["--bpe", str(bpe), "--output", str(tmp_path / "out"), "--from", str(half)]
    assert main([*words, "--tasks", "RTE"]) == 2
    assert "RTE: " in (error := capsys.readouterr().err) and "lacks train.tsv" in error
    assert not (tmp_path / "out").exists()
    assert main([*words, str(whole)]) == 0
    printed = capsys.readouterr().out
    assert "missing: CoLA" in printed and "lacks train.tsv and dev.tsv" in printed
    assert f"{whole / 'RTE'} has no test.tsv" in printed
    assert printed.splitlines()[-1].endswith("out: RTE")
    found = find_files(TASKS["RTE"], [half, whole])
    assert {path.parent.parent for path in found.paths.values()} == {whole}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("sentence2", "sentence"), "train.tsv, line 1: .* 'sentence2'"),
        (lambda text: text.replace("\tentailment", "\tmaybe", 1), "line 3: the label must be"),
        (lambda text: text[: len(text) - 30], "line 9: must have 4 "),
    ],
)
def test_wrong_files_leave_nothing_behind(tmp_path: Path, bpe: Path, change, message) -> None:
    """Not even of the other task, whose files are right."""
    source = write_stsb(write_rte(tmp_path / "raw"))
    path = source / "RTE" / "train.tsv"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        prepare([TASKS["STS-B"], TASKS["RTE"]], tmp_path / "out", Options(bpe), [source])
    assert not (tmp_path / "out").exists()


def test_a_sample_without_a_class_is_refused(tmp_path: Path, bpe: Path) -> None:
    source = write_rte(tmp_path / "raw")
    with pytest.raises(DataError, match=r"none of .* has the label .*--max-train"):
        for seed in range(20):
            prepare([TASKS["RTE"]], tmp_path / str(seed), Options(bpe, 2, seed=seed), [source])


def test_pieces_that_do_not_belong_together_are_refused(tmp_path: Path, bpe: Path) -> None:
    other = tmp_path / "bpe"
    shutil.copytree(bpe, other)
    lines = (other / "dict.txt").read_text().splitlines(keepends=True)
    (other / "dict.txt").write_text("".join(lines[20:]))
    with pytest.raises(DataError, match=r"dict\.txt lacks 20 of the ids"):
        prepare([TASKS["RTE"]], tmp_path / "out", Options(other), [write_rte(tmp_path / "raw")])


@pytest.fixture
def server(tmp_path: Path):
    """Serves tmp_path/served."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_official_zips_are_fetched_once_and_recorded(
    tmp_path: Path, bpe: Path, server: str
) -> None:
    source = write_rte(tmp_path / "raw")
    with zipfile.ZipFile(tmp_path / "served" / "RTE.zip", "w") as archive:
        archive.writestr("../escaped.tsv", "no")
        for path in (source / "RTE").iterdir():
            archive.write(path, f"RTE/{path.name}")
    task = replace(TASKS["RTE"], addresses=(f"{server}/RTE.zip",))
    prepare([task], tmp_path / "data" / "glue", Options(bpe))
    about = json.loads((tmp_path / "data" / "glue" / "RTE" / "data.json").read_text())
    assert len(about["origin"]["urls"][f"{server}/RTE.zip"]["sha256"]) == 64
    (tmp_path / "served" / "RTE.zip").unlink()
    prepare([task], tmp_path / "data" / "glue", Options(bpe))
    assert not list(tmp_path.rglob("escaped.tsv"))


def test_an_official_zip_without_a_split_is_not_taken(tmp_path: Path, server: str) -> None:
    with zipfile.ZipFile(tmp_path / "served" / "RTE.zip", "w") as archive:
        archive.writestr("RTE/readme.txt", "no data")
    task = replace(TASKS["RTE"], addresses=(f"{server}/RTE.zip",))
    with pytest.raises(DataError, match=r"RTE\.zip damaged \(.*lacks RTE/train\.tsv\); remove"):
        official.fetch(task, tmp_path / "downloads")
    assert not (tmp_path / "downloads" / "RTE").exists()


def test_mrpc_is_put_together_from_its_parts(tmp_path: Path, server: str) -> None:
    served = tmp_path / "served"
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = ['1\t10\t11\tA "quote\tb\r\n', "0\t12\t13\tc\td\r\n", "1\t14\t15\te\tf\r\n"]
    for name in ("train", "test"):
        (served / f"{name}.txt").write_bytes((header + "".join(rows)).encode())
    (served / "ids.tsv").write_text("12\t13\n")  # no header
    addresses = tuple(f"{server}/{name}" for name in ("train.txt", "test.txt", "ids.tsv"))
    task = replace(TASKS["MRPC"], addresses=addresses)
    folder = official.fetch(task, tmp_path / "downloads") / "MRPC"
    lines = {name: (folder / f"{name}.tsv").read_text().splitlines() for name in ("train", "dev")}
    assert lines["train"][1:] == ['1\t10\t11\tA "quote\tb', "1\t14\t15\te\tf"]
    assert lines["dev"][1:] == ["0\t12\t13\tc\td"]
    assert (folder / "test.tsv").read_text().splitlines()[1] == '0\t10\t11\tA "quote\tb'
    with (served / "train.txt").open("a") as train:
        train.write("\r\n")
    with pytest.raises(DataError, match=r"train\.txt, line 5: must have 5 fields, but has 0"):
        official.fetch(task, tmp_path / "again")


def test_generated_tasks_depend_on_order_alone(tmp_path: Path, bpe: Path) -> None:
    rng = random.Random(5)
    for sentence, label in (order(rng) for _ in range(200)):
        words = sentence.split()
        assert words[-1] == "." and (words[0].endswith("fold")) == (label == "right")
    for sentence, score in (place(rng) for _ in range(200)):
        words = sentence.split()
        assert float(score) == pytest.approx(5 * words.index("again") / (len(words) - 1), abs=1e-3)
    (tmp_path / "raw").mkdir()
    write_tasks(tmp_path / "raw", seed=1, examples={"train": 30, "dev": 20})
    tasks = [TASKS["Order"], TASKS["Place"]]
    prepare(tasks, tmp_path / "out", Options(bpe), [tmp_path / "raw"])
    dictionary = Dictionary.load(str(bpe / "dict.txt"))
    for name in ("Order", "Place"):
        prefix = str(tmp_path / "out" / name / "input0" / "train")
        data = data_utils.load_indexed_dataset(prefix, dictionary)
        assert len(data) == 30
        assert dictionary.unk() not in np.concatenate([data[i] for i in range(30)])
    with pytest.raises(ValueError, match="--dev-examples must be at least 1"):
        write_tasks(tmp_path, seed=1, examples={"dev": 0})
