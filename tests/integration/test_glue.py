"""The generated GLUE tasks from pre-training to metrics, through the recipes themselves."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.cli.analyse import main as analysis
from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe
from fairseq_plugins.data.sentences import generate
from fairseq_plugins.evaluation import glue as evaluation
from fairseq_plugins.evaluation.glue_command import main
from fairseq_plugins.glue import tasks
from fairseq_plugins.glue.prepare_generated import prepare_toy_glue
from fairseq_plugins.glue.tasks import Split, find_task
from tests.hostile import naming_another_model, rewritten
from tests.integration.helpers import REPOSITORY, hydra_train_config, load_checkpoint

SMALL = [
    *("model.encoder_layers=1", "model.encoder_embed_dim=32", "model.encoder_ffn_embed_dim=32"),
    *("model.dropout=0", "model.attention_dropout=0", "model=learned"),
]


def evaluate(path: Path, data: Path, task: str, *more: str, **options: Any) -> dict[str, Any]:
    return evaluation.evaluate(path, data, find_task(task), *more, **options)


def train(recipe: str, folder: Path, data: Path, *words: str) -> None:
    places = [f"checkpoint.save_dir={folder}", f"task.data={data}"]
    user_dir = f"common.user_dir={REPOSITORY / 'fairseq_plugins'}"
    config = REPOSITORY / "configs" / f"{recipe}.yaml"
    hydra_train_config(config, *SMALL, *places, user_dir, *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/<Task>, and a checkpoint of each in <task>/, from the same few masked words."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "bpe").mkdir()
    text = [" ".join(sentence.tokens) for sentence in generate(3, 300)]
    learn_gpt2_bpe(text, 150, folder / "bpe")
    examples = {"train": 800, "dev": 100}
    prepare_toy_glue(folder / "data", folder / "bpe", seed=1, examples=examples)
    # What the task reads is text as any: enough for three updates of pre-training.
    words = folder / "data" / "Order" / "input0"
    mlm = ["scale/mlm=toy", "optimization.max_update=3", "dataset.disable_validation=true"]
    train("wikitext103_mlm", folder / "mlm", words, *mlm)
    start = f"checkpoint.finetune_from_model={folder / 'mlm' / 'checkpoint_last.pt'}"
    for task in ("Order", "Place"):
        budget = ["optimization.max_update=150", "optimization.lr=[0.005]"]
        recipe = f"glue_{task.lower()}"
        train(recipe, folder / task, folder / "data" / task, start, *budget)
    return folder


def test_accuracy_is_what_training_saw(trained: Path) -> None:
    path = trained / "Order" / "checkpoint_last.pt"
    result = evaluate(path, trained / "data" / "Order", "Order")
    assert (result["subset"], result["examples"]) == ("valid", 100)
    seen = load_checkpoint(path)["extra_state"]["val_loss"]
    assert result["metrics"]["accuracy"] == pytest.approx(seen, abs=0.06)
    assert result["metrics"]["accuracy"] > 80


@pytest.mark.parametrize("task", ["Order", "Place"])
def test_predictions_are_written_as_glues_server_takes_them(
    trained: Path, tmp_path: Path, task: str
) -> None:
    data, output = trained / "data" / task, tmp_path / f"{task}.tsv"
    for part in ("input0", "label"):
        shutil.copytree(data / part, tmp_path / task / part)
    for path in (tmp_path / task / "input0").glob("valid.*"):  # generated tasks have no test set
        path.rename(path.with_stem("test"))
    for path in (tmp_path / task / "label").glob("valid.*"):
        path.unlink()
    checkpoint = trained / task / "checkpoint_last.pt"
    words = ["--path", str(checkpoint), "--data", str(tmp_path / task), "--task", task]
    assert main(["predict", *words, "--output", str(output)]) == 2
    one = find_task(task)
    unlabelled = replace(one, splits=(*one.splits, Split("test", "test.tsv", ("sentence",), None)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, task, unlabelled)
        assert main(["predict", *words, "--output", str(output), "--batch-size", "7"]) == 0
    head, *rows = (line.split("\t") for line in output.read_text().splitlines())
    assert head == ["index", "prediction"]
    assert [row[0] for row in rows] == [str(number) for number in range(100)]
    expected = [found.value for found in evaluation.predict(checkpoint, data, one, "valid")]
    if one.labels.is_number:
        assert [float(row[1]) for row in rows] == pytest.approx(expected, abs=1e-4)
    else:
        assert [row[1] for row in rows] == expected and {*expected} == {"right", "wrong"}


def test_a_figure_is_made_of_fine_tuned_models(trained: Path, tmp_path: Path) -> None:
    """Whose dictionary is in a folder of its own."""
    words = ["figure", "9", "--data", str(trained / "data" / "Order"), "--length", "12", "--cpu"]
    words += ["--checkpoint", f"Order={trained / 'Order' / 'checkpoint_last.pt'}"]
    assert analysis([*words, "--output", str(tmp_path / "x")]) == 0
    assert "- Order: `pe_roberta`" in (tmp_path / "x.md").read_text()


def test_the_folder_given_is_the_one_scored(trained: Path, tmp_path: Path) -> None:
    """Not the one that the checkpoint was trained on; with its classes in their order."""
    path, other = trained / "Order" / "checkpoint_last.pt", tmp_path / "Order"
    shutil.copytree(trained / "data" / "Order", other)
    for folder in ("input0", "label"):
        for suffix in ("bin", "idx"):
            (other / folder / f"train.{suffix}").replace(other / folder / f"valid.{suffix}")
    assert evaluate(path, other, "Order")["examples"] > 100
    lines = (other / "label" / "dict.txt").read_text().splitlines()
    (other / "label" / "dict.txt").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    with pytest.raises(CheckpointError, match=r"label/dict\.txt must have .*'s classes"):
        evaluate(path, other, "Order")
    # The folder of the training itself, if it is prepared anew with another order.
    moved = rewritten(
        path, tmp_path / "x.pt", lambda config: config["task"].update(data=str(other))
    )
    with pytest.raises(CheckpointError, match=r"label/dict\.txt must have .*'s classes"):
        evaluate(moved, other, "Order")
    (other / "label" / "dict.txt").unlink()
    with pytest.raises(DataError, match=r"label/dict\.txt does not exist"):
        evaluate(path, other, "Order")


def test_classes_of_a_checkpoint_that_does_not_say_them(trained: Path, tmp_path: Path) -> None:
    """As training wrote it before: its data, or the file beside it, must be there."""
    path, data = trained / "Order" / "checkpoint_last.pt", trained / "data" / "Order"

    def forget(config: dict[str, Any]) -> None:
        del config["model"]["label_digest"]

    (tmp_path / "old").mkdir()
    old = rewritten(path, tmp_path / "old" / "old.pt", forget)
    assert evaluate(old, data, "Order") == evaluate(path, data, "Order")
    other = tmp_path / "Order"
    shutil.copytree(data, other)
    lines = (other / "label" / "dict.txt").read_text().splitlines()
    (other / "label" / "dict.txt").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    with pytest.raises(DataError, match=r"label/dict\.txt, line 1: must be"):
        evaluate(old, other, "Order")
    gone = str(tmp_path / "gone")
    rewritten(old, old, lambda config: config["task"].update(data=gone))
    with pytest.raises(CheckpointError, match="does not record its classes"):
        evaluate(old, data, "Order")
    shutil.copytree(data / "label", old.parent / "label")
    assert evaluate(old, data, "Order") == evaluate(path, data, "Order")


@pytest.mark.slow
def test_a_training_does_not_go_on_with_other_classes(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor with the same in another order; but another task may begin with its weights."""
    path, other = trained / "Order" / "checkpoint_last.pt", tmp_path / "Order"
    shutil.copytree(trained / "data" / "Order", other)
    words = (other / "label" / "dict.txt").read_text().splitlines()
    (other / "label" / "dict.txt").write_text("\n".join([words[1], words[0], *words[2:]]) + "\n")
    (tmp_path / "same").mkdir()
    shutil.copy(path, tmp_path / "same")
    budget = "optimization.max_update=151"
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(CheckpointError, match=r"trained on other classes.* another --save-dir"):
        train("glue_order", tmp_path / "same", other, budget)
    train("glue_order", tmp_path / "same", trained / "data" / "Order", budget)
    start = f"checkpoint.finetune_from_model={path}"
    train("glue_order", tmp_path / "new", other, start, "optimization.max_update=1")


def test_correlations_do_not_depend_on_the_batch(
    trained: Path, capsys: pytest.CaptureFixture
) -> None:
    path, data = trained / "Place" / "checkpoint_best.pt", trained / "data" / "Place"
    words = ["evaluate", "--path", str(path), "--data", str(data), "--task", "Place", "--cpu"]
    assert main(words) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    alone = evaluate(path, data, "Place", batch_size=1)
    assert printed["metrics"] == pytest.approx(alone["metrics"], abs=1e-2)
    # Without having learned anything it would be within 20 of 0, 19 times out of 20.
    assert alone["metrics"]["spearman"] > 30


def test_what_does_not_fit_together_is_refused(trained: Path, tmp_path: Path) -> None:
    data, order = trained / "data", trained / "Order" / "checkpoint_last.pt"
    with pytest.raises(CheckpointError, match="was trained for 2 classes, which is not STS-B"):
        evaluate(order, data / "Order", "STS-B")
    with pytest.raises(CheckpointError, match="must be of the task sentence_prediction"):
        evaluate(trained / "mlm" / "checkpoint_last.pt", data / "Order", "Order")
    with pytest.raises(DataError, match="holds 'right', 'wrong', which RTE does not have"):
        evaluate(order, data / "Order", "RTE")
    with pytest.raises(OptionError, match="must be one with labels"):
        evaluate(order, data / "Order", "RTE", "test")
    with pytest.raises(CheckpointError, match="is missing"):
        evaluate(tmp_path / "none.pt", data / "Order", "Order")
    other = tmp_path / "Order"
    shutil.copytree(data / "Order", other)
    with (other / "input0" / "dict.txt").open("a") as more:
        more.write("900 1\n901 1\n")
    with pytest.raises(CheckpointError, match=r"has \d+ tokens, but .*dict\.txt has \d+"):
        evaluate(order, other, "Order")
    lines = (data / "Order" / "input0" / "dict.txt").read_text().splitlines()
    (other / "input0" / "dict.txt").write_text("\n".join([*lines[1::-1], *lines[2:]]) + "\n")
    with pytest.raises(CheckpointError, match=r"must hold the tokens of .* token 4 is"):
        evaluate(order, other, "Order")


def test_fine_tuning_with_another_dictionary_or_from_nothing_stops(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the dictionary, and by whether the checkpoint is there."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    other = tmp_path / "Order"
    shutil.copytree(trained / "data" / "Order", other)
    with (other / "input0" / "dict.txt").open("a") as more:
        more.write("900 1\n")
    checkpoint = trained / "mlm" / "checkpoint_last.pt"
    with pytest.raises(CheckpointError, match=r"has \d+ tokens, but .*dict\.txt has \d+"):
        start = f"checkpoint.finetune_from_model={checkpoint}"
        train("glue_order", tmp_path / "out", other, start)
    with pytest.raises(ValueError, match="does not exist"):
        start = f"checkpoint.finetune_from_model={tmp_path / 'absent.pt'}"
        train("glue_order", tmp_path / "out", trained / "data" / "Order", start)


def test_a_checkpoint_that_names_another_model_is_not_built(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """fairseq would evaluate its options as Python."""
    path, marker = tmp_path / "x.pt", tmp_path / "ran"
    naming_another_model(trained / "Order" / "checkpoint_last.pt", path, marker)
    data = trained / "data" / "Order"
    words = ["evaluate", "--path", str(path), "--data", str(data), "--task", "Order", "--cpu"]
    assert main(words) == 2
    assert "x.pt must be a pe_roberta, but is a fconv_lm" in capsys.readouterr().err
    assert not marker.exists()
