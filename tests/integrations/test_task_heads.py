"""Heads of fine-tuned checkpoints become those of Hugging Face's classes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

from fairseq_plugins.cli.convert import main
from fairseq_plugins.common.vocabulary import digest
from fairseq_plugins.modules.identity import ROBERTA
from tests import checkpoints
from tests.integrations.test_bert_conversion import our_order
from tests.published import write_bert_folder

PAD, LENGTH = 1, 10


@dataclass
class Trained:
    """A checkpoint, its model, and the option with its tokenizer."""

    path: Path
    model: Any
    option: tuple[str, str]
    is_bert: bool

    def convert(self, output: Path) -> Path:
        assert main(["to-huggingface", str(self.path), str(output), *self.option]) == 0
        return output

    def save(self, add: Callable[[Any], None], **options: Any) -> None:
        """Save the model with further heads."""
        add(self.model)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.add_(torch.randn_like(parameter) * ("_heads" in name))
        state = torch.load(self.path, weights_only=True)
        state["model"] = self.model.state_dict()
        state["cfg"]["model"].update(options)
        torch.save(state, self.path)

    def rows(self, folder: Path) -> Tensor:
        """Their ids in our order."""
        return our_order(folder) if self.is_bert else torch.arange(self.size)

    @property
    def size(self) -> int:
        return len(self.model.encoder.dictionary)


@pytest.fixture(params=["bert", "roberta"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Trained:
    is_bert, folder = request.param == "bert", tmp_path / "ours"
    if is_bert:
        source = write_bert_folder(tmp_path / "theirs", max_positions=LENGTH, head=True)
        assert main(["to-fairseq", str(source), str(folder)]) == 0
    else:
        checkpoints.write_data(ROBERTA, folder)
        state = checkpoints.make(ROBERTA, folder, position_encoding="learned")
        torch.save(state, folder / "model.pt")
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "model.pt")], arg_overrides={"data": str(folder)}
    )
    option = ("--tokenizer" if is_bert else "--bpe", str(folder))
    return Trained(folder / "model.pt", models[0].eval(), option, is_bert)


def tokens_of(trained: Trained) -> Tensor:
    """Ids (2, LENGTH) from <s> to </s>, the second row padded."""
    tokens = torch.randint(4, trained.size - 1, (2, LENGTH))
    tokens[:, 0], tokens[0, -1], tokens[1, 5], tokens[1, 6:] = 0, 2, 2, PAD
    return tokens


def theirs(kind: Any, folder: Path, trained: Trained, tokens: Tensor) -> Any:
    model = kind.from_pretrained(folder).eval()
    return model(trained.rows(folder)[tokens], attention_mask=tokens.ne(PAD).long())


@torch.no_grad()
@pytest.mark.parametrize("labels", [1, 3])
def test_a_classifier(trained: Trained, tmp_path: Path, labels: int) -> None:
    trained.save(lambda model: model.register_classification_head("x", num_classes=labels))
    folder, tokens = trained.convert(tmp_path / "back"), tokens_of(trained)
    ours, _ = trained.model(tokens, features_only=True, classification_head_name="x")
    found = theirs(AutoModelForSequenceClassification, folder, trained, tokens).logits
    assert ours.shape == (2, labels)
    torch.testing.assert_close(found, ours, rtol=0, atol=1e-5)
    name = f"{'Bert' if trained.is_bert else 'Roberta'}ForSequenceClassification"
    assert json.loads((folder / "config.json").read_text())["architectures"] == [name]
    # The output head is still there.
    assert theirs(AutoModelForMaskedLM, folder, trained, tokens).logits.size(-1) == trained.size


def test_a_classifier_keeps_the_names_of_its_labels(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their order depends on the data that it was trained with."""
    names = ["neutral", "entailment", "contradiction"]
    trained.save(
        lambda model: model.register_classification_head("x", num_classes=3),
        label_digest=digest([*names, "madeupword0000"]),
    )
    plain = AutoConfig.from_pretrained(trained.convert(tmp_path / "plain"))
    assert plain.id2label[2] == "LABEL_2" and "put label/dict.txt" in capsys.readouterr().err
    labels = trained.path.parent / "label" / "dict.txt"
    labels.parent.mkdir()
    labels.write_text("".join(f"{name} 1\n" for name in (*names, "madeupword0000")))
    named = AutoConfig.from_pretrained(trained.convert(tmp_path / "named"))
    assert [named.id2label[i] for i in range(3)] == names
    assert len(named.id2label) == 3 and named.label2id == {name: i for i, name in enumerate(names)}
    labels.write_text("contradiction 1\nneutral 1\nentailment 1\n")
    assert AutoConfig.from_pretrained(trained.convert(tmp_path / "other")).id2label[0] == "LABEL_0"


def test_half_precision_weights_are_written_in_single(trained: Trained, tmp_path: Path) -> None:
    trained.save(lambda model: model.half())
    written = load_file(trained.convert(tmp_path / "back") / "model.safetensors")
    assert {weight.dtype for weight in written.values()} == {torch.float32}


@torch.no_grad()
def test_a_head_for_spans(trained: Trained, tmp_path: Path) -> None:
    trained.save(lambda model: model.register_span_head("answer"))
    folder, tokens = trained.convert(tmp_path / "back"), tokens_of(trained)
    real = tokens.ne(PAD)
    ours, _ = trained.model(tokens, span_head_name="answer")
    found = theirs(AutoModelForQuestionAnswering, folder, trained, tokens)
    both = torch.stack((found.start_logits, found.end_logits), -1)
    torch.testing.assert_close(both[real], ours[real], rtol=0, atol=1e-5)


def several(model: Any) -> None:
    model.register_span_head("answer")
    model.register_classification_head("x", num_classes=2)


def wide(model: Any) -> None:
    model.register_classification_head("x", num_classes=2, inner_dim=5)


def usual(model: Any) -> None:
    model.register_classification_head("x", num_classes=2)


@pytest.mark.parametrize(
    ("add", "options"), [(several, {}), (wide, {}), (usual, {"pooler_activation_fn": "gelu"})]
)
def test_others_are_left_behind_and_named(
    trained: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    add: Callable[[Any], None],
    options: dict[str, Any],
) -> None:
    trained.save(add, **options)
    folder = trained.convert(tmp_path / "back")
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    assert architecture.endswith("ForMaskedLM")
    assert "not converted: classification_heads.x.dense.bias, " in capsys.readouterr().err
