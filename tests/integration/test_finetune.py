"""`fairseq-pe finetune` from a small published-style model to scores and predictions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_plugins.cli import finetune
from fairseq_plugins.common import provenance
from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe
from fairseq_plugins.evaluation.glue import Prediction
from fairseq_plugins.glue import custom
from fairseq_plugins.integrations.published import prepare_start
from fairseq_plugins.runner import finetune_command, finetuning
from fairseq_plugins.runner.finetuning import FineTuning
from fairseq_plugins.tasks.pe_sentence_prediction import (
    PESentencePredictionConfig,
    PESentencePredictionTask,
)
from tests.integration import toy_repository as toy
from tests.published import write_bert_folder

EXAMPLES = [("yes", "the cat sat on the mat and the cat is"), ("no", "what dog is not on the mat")]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = toy.make_repository(tmp_path / "root", {}, ())
    prepare_start(root / "checkpoints" / "start", write_bert_folder(tmp_path / "bert"), tmp_path)
    lines = [f"{label}\t{text} {number % 7}" for number in range(20) for label, text in EXAMPLES]
    (root / "own.tsv").write_text("label\tsentence\n" + "\n".join(lines) + "\n")
    (root / "new.tsv").write_text("n\tsentence\n1\tthe cat\n2\tthe dog is not\n3\tthe cat\n")
    monkeypatch.setattr(finetune_command, "ROOT", root)
    monkeypatch.setattr(finetune_command, "data_folder", lambda name: root / "data" / name)
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize(
    ("examples", "encoding", "message"),
    [
        (
            "yes\ta\nno\tb\nno\tc\nyes\td\n",
            "rope",
            "error: the text to adapt on (the sentences of DATA, and --text FILE) must have at "
            "least 20 lines of similar length, or none is left for valid, but has 4",
        ),
        ("0.5\ta\n1.5\tb\n", "base", "error: DATA must have at least 3 examples, of which 2 are"),
    ],
)
def test_too_few_examples_are_told_by_their_number(root, capsys, examples, encoding, message):
    (root / "own.tsv").write_text(f"label\tsentence\n{examples}")
    assert finetune.main(["own.tsv", "--encoding", encoding]) == 2
    assert message in capsys.readouterr().err
    assert not (root / "data").exists()


@pytest.mark.slow
def test_own_examples_fine_tune_a_start_with_and_without_exchange(root, capsys, monkeypatch):
    monkeypatch.setattr(finetuning, "_NEAR", 1.1)  # which no cosine reaches
    words = ["own.tsv", "--encoding", "base,rope", "--epochs", "2", "--adapt-updates", "4"]
    words += ["--predict", "new.tsv", "--lr", "1e-3", "--batch-size", "8"]
    assert finetune.main(words) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert "base-vanilla-s1: accuracy " in said and "rope-vanilla-s1: accuracy " in said
    assert "cosine to the start's last layer" in said and "rope - base" in said
    assert "below 1.1: more --adapt-updates or --text would help" in said
    folder = root / "checkpoints" / "finetune" / "own"
    predicted = (folder / "base-vanilla-s1" / "new-predictions.tsv").read_text()
    table = [line.split("\t") for line in predicted.splitlines()]
    assert table[0] == ["n", "sentence", "prediction", "probability"]
    assert [line[0] for line in table[1:]] == ["1", "2", "3"]
    assert table[1][1:] == table[3][1:] and table[1][2] in ("yes", "no")
    recorded = json.loads((folder / "base-vanilla-s1" / "finetune.json").read_text())
    assert recorded["commit"] == provenance.commit(root)
    before = (folder / "rope-vanilla-s1" / "tuned" / "checkpoint_last.pt").stat().st_mtime_ns
    assert finetune.main(words) == 0
    assert "updates" not in capsys.readouterr().out
    assert (
        folder / "rope-vanilla-s1" / "tuned" / "checkpoint_last.pt"
    ).stat().st_mtime_ns == before
    assert finetune.main(["own.tsv", "--encoding", "learned", "--epochs", "1"]) == 0
    assert "cosine" not in capsys.readouterr().out  # it is the start's own
    kept = (folder / "rope-vanilla-s1" / "tuned").glob("*.pt")
    assert [path.name for path in kept] == ["checkpoint_last.pt"]
    assert finetune.main([*words, "--encoding", "none,base", "--epochs", "3"]) == 2
    text = "base-vanilla-s1 has a model of other data, start or settings (epochs: 2 -> 3)"
    assert text in capsys.readouterr().err
    assert not (folder / "none-vanilla-s1").exists(), "refused before anything is trained"


def test_predicted_numbers_have_the_digits_of_a_float_whatever_their_size(root):
    labels = custom.read_task(root / "own.tsv").labels
    task = SimpleNamespace(labels=replace(labels, classes=()))
    values = [2001.19, 1.25e-6, -0.5]
    found = [Prediction(value, None, None) for value in values]
    data = SimpleNamespace(task=task)
    one = SimpleNamespace(data=data, predict=lambda: found, folder=Path("x"))
    (root / "x").mkdir()
    finetune_command._write_predictions(SimpleNamespace(predict=root / "new.tsv"), one)
    lines = (root / "x" / "new-predictions.tsv").read_text().splitlines()
    assert lines[0] == "n\tsentence\tprediction"
    assert [float(line.split("\t")[2]) for line in lines[1:]] == values


def pairs(root: Path, start: Path, labels: tuple[str, ...]) -> FineTuning:
    """Plan the fine-tuning of a start on pairs whose first sentence alone is too long."""
    lines = [f"{labels[i % 2]}\t{'the cat ' * 40}\tthe dog is" for i in range(8)]
    path = root / "pairs.tsv"
    path.write_text("label\tsentence1\tsentence2\n" + "\n".join(lines) + "\n")
    args = finetune.get_parser().parse_args([str(path), "--max-length", "16"])
    args.start = start / "model.pt"
    return finetune_command._plan(args, custom.read_task(path))[0]


@pytest.mark.parametrize("labels", [("yes", "no"), ("0.5", "1.5")])
def test_both_sentences_of_a_long_pair_stay_in_the_form_of_the_start(root, labels):
    """The second used to be cut off as a whole, and a RoBERTa's pairs could not be trained on."""
    examples = {}
    for name in ("bert", "roberta"):
        start = root / "checkpoints" / "start"
        if name == "roberta":
            tokenizer = root / "bpe"
            tokenizer.mkdir()
            learn_gpt2_bpe(["the cat the dog is"] * 9, 20, tokenizer)
            start = start.with_name("roberta")
            shutil.copytree(root / "checkpoints" / "start", start)
            (start / "tokenizer.json").unlink()
            (start / "vocab.txt").unlink()
            for path in tokenizer.iterdir():
                shutil.copyfile(path, start / path.name)
            checkpoint = torch.load(start / "model.pt", weights_only=True)
            checkpoint["cfg"]["model"]["segments"] = "none"
            torch.save(checkpoint, start / "model.pt")
        one = pairs(root, start, labels)
        config = one.trainings()[0].config["task"]
        settings = PESentencePredictionConfig(
            data=str(root / one.data.folder),
            **{key: config[key] for key in ("num_classes", "init_token", "separator_token")},
            **{key: config[key] for key in ("max_positions", "shorten_method")},
            regression_target=one.data.task.labels.is_number,
            seed=1,
        )
        task = PESentencePredictionTask.setup_task(settings)
        task.load_dataset("held_out")
        dataset, number = task.dataset("held_out"), task.source_dictionary
        tokens = dataset[0]["net_input.src_tokens"]
        assert len(tokens) == 16 and tokens[-1] == number.eos()
        ends = tokens.eq(number.eos()).nonzero().view(-1).tolist()
        examples[name] = ends
    assert len(examples["bert"]) == 2 and len(examples["roberta"]) == 3
    assert examples["bert"][0] > 8  # the second sentence is whole


def test_what_cannot_be_is_refused_before_any_work(root, capsys):
    for words, message in (
        (["own.tsv", "--encoding", "roope"], "Did you mean 'rope'"),
        (["own.tsv", "--encoding", "rope,base,learned"], "one of base and learned, the same"),
        (["own.tsv", "--start", "nowhere"], "--start must be a folder or checkpoint"),
        (["no.tsv"], "DATA must be an existing file, but is no.tsv"),
        (["own.tsv", "--encoding", "base", "--text", "own.tsv"], "--text must be left out"),
        (["own.tsv", "--encoding", "base", "--adapt-updates", "9"], "--adapt-updates must be left"),
        (["own.tsv", "--max-length", "2"], "--max-length must be at least 3, but is 2"),
    ):
        assert finetune.main(words) == 2
        assert message in capsys.readouterr().err
    assert not (root / "data").exists()
