"""From generated questions to exact match: prepared, trained by both routes, answered, scored."""

import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.prepare_mlm import prepare_toy as prepare_words
from fairseq_plugins.evaluation.squad_command import main
from fairseq_plugins.squad.dataset import load_windows
from fairseq_plugins.squad.examples import read_squad
from fairseq_plugins.squad.features import NO_ANSWER, WindowSizes
from fairseq_plugins.squad.folder import features_path, raw_path
from fairseq_plugins.squad.prepare import find_files, prepare, prepare_toy
from fairseq_plugins.tasks.squad import SquadTask
from tests.hostile import naming_another_model
from tests.integration.helpers import (
    REPOSITORY,
    fairseq_train,
    hydra_train_config,
    load_checkpoint,
    load_model,
    losses,
    overrides,
)
from tests.integration.test_roberta import COMMON, MODEL, RESTART, model_of, pretrain
from tests.preprocessing import preprocess_here

Settings = dict[str, Any]
SIZES = WindowSizes(max_length=64, stride=32, max_query_length=12)
TEXTS = {"train": 24, "valid": 6}
SQUAD: Settings = {
    **COMMON,
    **MODEL,
    "task._name": "squad",
    "criterion._name": "squad",
    "dataset.batch_size": 16,
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded corpus for masked words, with the pieces it was written in."""
    folder = tmp_path_factory.mktemp("words") / "data"
    with preprocess_here():
        prepare_words(folder, seed=1, sentences={"train": 300, "valid": 8, "test": 8}, merges=150)
    return folder


@pytest.fixture(scope="module")
def bpe(words: Path) -> Path:
    return words / "bpe"


# For what no version changes.
ONE_VERSION = pytest.mark.parametrize(
    "questions", [pytest.param("1.1", marks=pytest.mark.slow), "2.0"], indirect=True
)


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def questions(request: Any, bpe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of one version."""
    folder = tmp_path_factory.mktemp("squad") / "data"
    prepare_toy(folder, version=request.param, bpe=bpe, seed=1, texts=TEXTS, sizes=SIZES)
    return folder


@pytest.fixture(scope="module")
def pretrained(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of masked words, barely trained, that can read the questions' windows."""
    model = model_of("vanilla", "base", max_positions=SIZES.max_length)
    return pretrain(tmp_path_factory.mktemp("pretrained"), words, model)


def test_every_answer_is_recovered(questions: Path) -> None:
    version = json.loads((questions / "data.json").read_text())["request"]["version"]
    for split in TEXTS:
        squad = read_squad(raw_path(questions, split), version)
        dictionary = SquadTask.load_dictionary(str(questions / "dict.txt"))
        windows, features = load_windows(questions, split, dictionary)
        answered = 0
        for question, found in features.answers(squad):
            if question.answers:
                answered += 1
                assert found and set(found) == {question.answers[0].text}
            else:
                assert not found
        assert answered and len(windows) == len(features) > len(squad.questions)
        # Some window of some question lacks its answer, and asks for <s>.
        assert (features.end == NO_ANSWER).any()
        assert max(windows.sizes[0]) <= SIZES.max_length


def test_a_folder_says_what_needs_no_model(questions: Path) -> None:
    floors = json.loads((questions / "data.json").read_text())["floors"]["valid"]
    assert len(floors) == 2
    for scores in floors.values():
        assert 0.0 <= scores["exact"] <= scores["f1"] <= 100.0


def settings(data: Path, folder: Path, **more: Any) -> Settings:
    model = model_of("vanilla", "base", max_positions=SIZES.max_length)
    places = {"task.data": data, "checkpoint.save_dir": folder}
    return {**SQUAD, **model, **places, **{k.replace("__", "."): v for k, v in more.items()}}


def answer(checkpoint: Path, data: Path, folder: Path, *words: str) -> dict[str, Any]:
    """What `evaluate` prints about the answers that `predict` writes."""
    output = folder / "predictions.json"
    predict = ["predict", "--path", str(checkpoint), "--data", str(data), "--output", str(output)]
    assert main([*predict, "--cpu", *words]) == 0
    return json.loads(output.read_text())


@ONE_VERSION
def test_begins_with_pretrained_weights(questions: Path, pretrained: Path, tmp_path: Path) -> None:
    """All weights of masked words, and a new head; by both of fairseq's ways to say it."""
    still = {"optimization__lr": [0.0], "optimization__max_update": 1}
    for way in (
        {"checkpoint.finetune_from_model": pretrained},
        {"checkpoint.restore_file": pretrained, **RESTART},
    ):
        folder = tmp_path / str(len(way))
        fairseq_train({**settings(questions, folder, **still), **way})
        before = load_checkpoint(pretrained)["model"]
        after = load_checkpoint(folder / "checkpoint_last.pt")["model"]
        assert set(after) - set(before) == {
            "span_heads.squad.out_proj.weight",
            "span_heads.squad.out_proj.bias",
        }
        for name, value in before.items():
            assert torch.equal(after[name], value), name


@ONE_VERSION
def test_train_predict_evaluate(
    questions: Path, pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It learns the training questions by heart, answers them and is scored as official files."""
    begin = {"checkpoint.finetune_from_model": pretrained}
    budget = {"optimization__max_update": 150, "checkpoint__save_interval_updates": 0}
    folder = tmp_path / "run"
    fairseq_train({**settings(questions, folder, **budget), **begin, "dataset.batch_size": 32})
    checkpoint = folder / "checkpoint_last.pt"
    texts = answer(checkpoint, questions, tmp_path, "--subset", "train")
    dataset, predictions = raw_path(questions, "train"), tmp_path / "predictions.json"
    assert list(texts) == [question.id for question in read_squad(dataset).questions]
    capsys.readouterr()
    assert main(["evaluate", str(dataset), str(predictions)]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact"] > 60 and scores["total"] == 4 * TEXTS["train"]

    # A batch's padding changes no answer, and the other outputs agree with the first.
    more = [tmp_path / "n_best.json", tmp_path / "no_answer.json"]
    words = ["--subset", "train", "--batch-size", "3", "--n-best-output", str(more[0])]
    version = read_squad(dataset).version
    if version == "2.0":
        words += ["--no-answer-output", str(more[1])]
    assert answer(checkpoint, questions, tmp_path, *words) == texts
    spans = json.loads(more[0].read_text())
    assert all(spans[name][0]["text"] == text for name, text in texts.items() if text)
    if version == "2.0":
        no_answer = json.loads(more[1].read_text())
        assert all((no_answer[name] > 0.5) == (text == "") for name, text in texts.items())
        assert main(["evaluate", str(dataset), str(predictions), "--no-answer", str(more[1])]) == 0
        assert json.loads(capsys.readouterr().out)["best_exact"] >= scores["exact"]


@pytest.mark.slow
@ONE_VERSION
def test_recipe_resumes_as_if_it_never_stopped(
    questions: Path, pretrained: Path, tmp_path: Path
) -> None:
    """The recipe through Hydra, in one go and in two: the same losses in the second epoch too."""
    version = read_squad(raw_path(questions, "valid")).version
    config = REPOSITORY / "configs" / f"squad_v{version[0]}.yaml"
    small: Settings = {
        "common.user_dir": REPOSITORY / "fairseq_plugins",
        "task.data": questions,
        "checkpoint.finetune_from_model": pretrained,
        "checkpoint.save_interval_updates": 1,
        "checkpoint.keep_interval_updates": -1,
        "dataset.batch_size": 48,
        **{key: value for key, value in MODEL.items() if not key.endswith("_name")},
        "model.encoder_normalize_before": False,
        "lr_scheduler.total_num_update": 10,
    }

    def train(folder: Path, updates: int) -> dict[int, float]:
        more = {"optimization.max_update": updates, "checkpoint.save_dir": folder}
        hydra_train_config(config, "scale/squad=toy", *overrides({**small, **more}))
        return losses(folder)

    whole = train(tmp_path / "whole", 5)
    assert list(whole) == [1, 2, 4, 5]  # the third ends the first epoch, under another name
    train(tmp_path / "parts", 4)
    assert train(tmp_path / "parts", 5) == whole


@ONE_VERSION
def test_a_padded_batch_gives_what_each_window_gives_alone(
    questions: Path, pretrained: Path, tmp_path: Path
) -> None:
    begin = {"checkpoint.finetune_from_model": pretrained}
    fairseq_train({**settings(questions, tmp_path, optimization__max_update=1), **begin})
    model, task = load_model(tmp_path / "checkpoint_last.pt")
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    rows = np.argsort(dataset.sizes[0] if isinstance(dataset.sizes, list) else dataset.sizes)
    rows = [int(rows[0]), int(rows[-1])]

    def run(rows: list[int]) -> torch.Tensor:
        inputs = dataset.collater([dataset[i] for i in rows])["net_input"]
        with torch.no_grad():
            logits: torch.Tensor = model(**inputs, span_head_name="squad")[0]
        return logits

    together = run(rows)
    for i, row in enumerate(rows):
        (alone,) = run([row])
        torch.testing.assert_close(together[i, : len(alone)], alone, rtol=1e-4, atol=1e-5)
        assert together[i, len(alone) :].eq(float("-inf")).all()


def _other_dictionary(folder: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = folder / "dict.txt"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-8], r"has \d+ tokens, but .*dict\.txt has \d+"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], r"token 4 is '\d+' instead of '\d+'"),
    ],
)
def test_another_dictionary(
    change: Any, message: str, questions: Path, pretrained: Path, tmp_path: Path
) -> None:
    other = tmp_path / "data"
    shutil.copytree(questions, other)
    _other_dictionary(other, change)
    begin = {"checkpoint.finetune_from_model": pretrained}
    with pytest.raises(ValueError, match=message) as error:
        fairseq_train({**settings(other, tmp_path / "run"), **begin})
    assert str(pretrained) in str(error.value) or "token 4" in str(error.value)
    assert not list((tmp_path / "run").glob("*.pt"))


def test_a_checkpoint_that_names_another_model_is_not_built(
    questions: Path, pretrained: Path, tmp_path: Path, capsys: Any
) -> None:
    """fairseq would evaluate its options as Python."""
    path, marker, output = tmp_path / "x.pt", tmp_path / "ran", tmp_path / "predictions.json"
    naming_another_model(pretrained, path, marker)
    words = ["predict", "--path", str(path), "--data", str(questions), "--output", str(output)]
    assert main(words) == 2
    assert "x.pt must be a pe_roberta, but is a fconv_lm" in capsys.readouterr().err
    assert not marker.exists() and not output.exists()


def test_wrong_input(questions: Path, words: Path, tmp_path: Path, capsys: Any) -> None:
    """Said in one line, and nothing is written."""
    output = tmp_path / "predictions.json"
    cases = [
        (["evaluate", str(tmp_path / "none.json"), "x"], "none.json: cannot be read"),
        (["evaluate", str(raw_path(questions, "valid")), __file__], "Invalid JSON: "),
        (
            ["predict", "--path", __file__, "--data", str(words), "--output", str(output)],
            "holds other data; scripts/prepare_squad.sh makes such a folder",
        ),
        (
            ["predict", "--path", "x", "--data", str(questions), "--output", str(output)],
            "--path must be an existing file, but is x",
        ),
    ]
    for arguments, message in cases:
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert not output.exists()


def test_prepare_from_a_folder(questions: Path, bpe: Path, tmp_path: Path) -> None:
    """Official names and parts, plain and packed; done once; nothing is left by what fails."""
    version = read_squad(raw_path(questions, "valid")).version
    source = tmp_path / "source"
    source.mkdir()
    output = tmp_path / "out"
    with pytest.raises(DataError, match=rf"does not hold train-v{re.escape(version)}\.json or"):
        prepare(output, version=version, bpe=bpe, source=source)
    train = raw_path(questions, "train").read_bytes()
    (source / f"train-v{version}.json.xz").write_bytes(lzma.compress(train))
    (source / f"v{version}").mkdir()
    part = source / f"v{version}" / "dev-part.json"
    part.write_bytes(raw_path(questions, "valid").read_bytes()[:-9])
    assert find_files(source, version)["valid"] == part
    with pytest.raises(DataError, match=r"dev-part\.json: Invalid JSON: .* at line \d+ column"):
        prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES)
    assert not output.exists()
    part.write_bytes(raw_path(questions, "valid").read_bytes())
    prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES)
    for name in ("train.bin", "train.idx", "valid.bin", "raw/valid.json", "dict.txt"):
        assert (output / name).read_bytes() == (questions / name).read_bytes()
    made = features_path(output, "train").stat().st_mtime_ns
    prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES)
    assert features_path(output, "train").stat().st_mtime_ns == made
    (output / "train.npz").unlink()
    prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES)
    assert features_path(output, "train").is_file()
    part.write_bytes(raw_path(questions, "valid").read_bytes() + b"\n")
    with pytest.raises(DataError, match=r"out has other data \(other files: valid\)"):
        prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES)
    prepare(output, version=version, bpe=bpe, source=source, sizes=SIZES, force=True)
    assert raw_path(output, "valid").read_bytes() == part.read_bytes()
