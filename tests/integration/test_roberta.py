"""``pe_roberta`` through fairseq's commands: masked words, then sentence pairs."""

import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq_cli import preprocess

from tests.integration.conftest import WORDS
from tests.integration.helpers import (
    ENCODING_DEFAULTS,
    TINY,
    TOKENS_PER_SAMPLE,
    fairseq_hydra_train,
    fairseq_train,
    fairseq_validate,
    load_checkpoint,
    load_model,
    losses,
    overrides,
    record_draws,
    stopping_before_training,
)

Settings = dict[str, Any]

MODEL: Settings = {
    "model._name": "pe_roberta",
    "model.encoder_layers": 2,
    "model.encoder_embed_dim": 32,
    "model.encoder_ffn_embed_dim": 32,
    "model.encoder_attention_heads": 4,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
}
COMMON = {name: v for name, v in TINY.items() if name.split(".")[0] not in ("model", "task")}
MASKED_LM: Settings = {
    **COMMON,
    **MODEL,
    "task._name": "masked_lm",
    "task.tokens_per_sample": TOKENS_PER_SAMPLE,
    "task.sample_break_mode": "complete",
    "criterion._name": "masked_lm",
}
# Twice the length of pre-training: a pair has two sentences.
LONGEST = 2 * TOKENS_PER_SAMPLE
SENTENCES: Settings = {
    **COMMON,
    **MODEL,
    "task._name": "sentence_prediction",
    "task.init_token": 0,
    "task.separator_token": 2,
    "criterion._name": "sentence_prediction",
}
RESTART: Settings = {
    "checkpoint.reset_optimizer": True,
    "checkpoint.reset_dataloader": True,
    "checkpoint.reset_meters": True,
}


def model_of(attention: str, encoding: str, **options: Any) -> Settings:
    named = {"attention_type": attention, "position_encoding": encoding, **options}
    return {f"model.{name}": value for name, value in named.items()}


def pretrain(folder: Path, data: Path, model: Settings) -> Path:
    """Masked-LM training by flags; its last checkpoint."""
    places = {"task.data": data, "checkpoint.save_dir": folder}
    fairseq_train({**MASKED_LM, **model, **places})
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    ("attention", "encoding"),
    [
        ("vanilla", "tupe"),
        ("linear", "lrpe_type2"),
        pytest.param("vanilla", "base", marks=pytest.mark.slow),
    ],
)
def test_masked_words(attention: str, encoding: str, data: Path, tmp_path: Path) -> None:
    """Flags and YAML are two ways to say the same; the checkpoint is plain data."""
    model = model_of(attention, encoding)
    by_flags, by_hydra = tmp_path / "flags", tmp_path / "hydra"
    checkpoint = pretrain(by_flags, data, model)
    yaml = {**MASKED_LM, **ENCODING_DEFAULTS, "task.data": data, "checkpoint.save_dir": by_hydra}
    fairseq_hydra_train(tmp_path / "yaml", yaml, *overrides(model))
    assert list(losses(by_flags)) == [1, 2, 3]
    assert losses(by_flags) == losses(by_hydra)
    saved = load_checkpoint(checkpoint)["model"]
    loaded, task = load_model(checkpoint)
    assert loaded.max_positions() == TOKENS_PER_SAMPLE
    for name, value in loaded.state_dict().items():
        assert torch.equal(saved[name], value), name
    tokens = torch.tensor([[task.source_dictionary.bos(), 5, 6, 7, task.source_dictionary.eos()]])
    assert loaded(tokens)[0].isfinite().all()


def test_validation_of_a_stochastic_encoding_is_reproducible(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq-validate seeds nothing itself."""
    checkpoint = pretrain(tmp_path, data, model_of("linear", "spe"))
    drawn, runs = record_draws(monkeypatch), []
    for before in (1, 2):
        torch.manual_seed(before)
        del drawn[:]
        fairseq_validate(data, checkpoint, "--task", "masked_lm")
        runs.append(list(drawn))
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(runs[0]) > 2


def test_validation_refuses_overrides_of_unknown_options(data: Path, tmp_path: Path) -> None:
    checkpoint = pretrain(tmp_path, data, model_of("linear", "rope"))
    words = ["--task", "masked_lm", "--model-overrides"]
    fairseq_validate(data, checkpoint, *words, "{'linear_epsilon': 0.1}")
    with pytest.raises(ValueError, match=r"`model_overrides` .* has 'linear_epsilom'"):
        fairseq_validate(data, checkpoint, *words, "{'linear_epsilom': 0.1}")


@pytest.fixture(scope="module")
def pairs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of sentences: class 1 and score 1 where both take their words from the same half."""
    folder = tmp_path_factory.mktemp("pairs")
    rng, half = random.Random(3), len(WORDS) // 2
    texts: dict[str, dict[str, list[str]]] = {}
    for split, count in (("train", 128), ("valid", 32)):
        columns: dict[str, list[str]] = {"input0": [], "input1": [], "label": []}
        for _ in range(count):
            sides = rng.choice([0, 1]), rng.choice([0, 1])
            for column, side in zip(("input0", "input1"), sides, strict=True):
                words = WORDS[half:] if side else WORDS[:half]
                columns[column].append(" ".join(rng.choices(words, k=rng.randint(2, 9))))
            columns["label"].append(str(int(sides[0] == sides[1])))
        texts[split] = columns
    for column in ("input0", "input1", "label"):
        for split, columns in texts.items():
            text = "\n".join(columns[column]) + "\n"
            (folder / f"{split}.{column}").write_text(text, encoding="utf-8")
        _binarise(folder, column, None if column == "label" else data / "dict.txt")
    for split, columns in texts.items():  # what a regression reads
        scores = "".join(f"{label}.0\n" for label in columns["label"])
        (folder / "bin" / "label" / f"{split}.label").write_text(scores, encoding="utf-8")
    return folder / "bin"


def _binarise(folder: Path, column: str, dictionary: Path | None) -> None:
    words = ["fairseq-preprocess", "--only-source", "--destdir", str(folder / "bin" / column)]
    for split in ("train", "valid"):
        words += [f"--{split}pref", str(folder / f"{split}.{column}")]
    before = sys.argv
    sys.argv = [*words, *(("--srcdict", str(dictionary)) if dictionary else ())]
    try:
        preprocess.cli_main()
    finally:
        sys.argv = before


HEADS: dict[str, Settings] = {
    "classes": {"task.num_classes": 2},
    "score": {"task.num_classes": 1, "criterion.regression_target": True},
}


# Each head with one model is enough where time is short.
TUNED = {("vanilla", "tupe"): "score", ("linear", "lrpe_type2"): "classes", ("vanilla", "base"): ""}


@pytest.mark.parametrize(
    ("attention", "encoding", "head"),
    [
        pytest.param(*model, head, marks=[] if head == quick else [pytest.mark.slow])
        for model, quick in TUNED.items()
        for head in HEADS
    ],
)
def test_fine_tuning(
    attention: str, encoding: str, head: str, data: Path, pairs: Path, tmp_path: Path
) -> None:
    """From a checkpoint of masked words, whose weights it starts from; it learns."""
    model = model_of(attention, encoding, max_positions=LONGEST)
    checkpoint = pretrain(tmp_path / "pretrained", data, model)
    del model["model.max_positions"]  # the task's, which fairseq gives to the model
    settings = {
        **SENTENCES,
        **RESTART,
        **HEADS[head],
        **model,
        "task.data": pairs,
        "task.max_positions": LONGEST,
        "checkpoint.restore_file": checkpoint,
        "dataset.batch_size": 32,
    }
    still = {"optimization.lr": [0.0], "optimization.max_update": 1}
    fairseq_train({**settings, **still, "checkpoint.save_dir": tmp_path / "still"})
    before = load_checkpoint(checkpoint)["model"]
    after = load_checkpoint(tmp_path / "still" / "checkpoint_last.pt")["model"]
    assert any(name.startswith("classification_heads.") for name in after)
    for name, value in before.items():
        assert torch.equal(after[name], value), name

    budget = {"optimization.max_update": 12, "optimization.lr": [0.003]}
    by_hydra = (attention, head) == ("linear", "classes")
    _tune({**settings, **budget, "checkpoint.save_dir": tmp_path / "tuned"}, by_hydra=by_hydra)
    history = list(losses(tmp_path / "tuned").values())
    assert sum(history[-4:]) < sum(history[:4])
    _predict(tmp_path / "tuned" / "checkpoint_last.pt", HEADS[head]["task.num_classes"])


def _tune(settings: Settings, *, by_hydra: bool) -> None:
    if by_hydra:
        fairseq_hydra_train(settings["checkpoint.save_dir"].parent / "yaml", settings)
    else:
        fairseq_train(settings)


def _predict(checkpoint: Path, num_classes: int) -> None:
    """A padded batch of pairs gets from a loaded model what each pair gets alone."""
    model, task = load_model(checkpoint)
    head = task.cfg.classification_head_name
    task.load_dataset("valid")
    dataset = task.dataset("valid")

    def predict(rows: list[int]) -> torch.Tensor:
        tokens = dataset.collater([dataset[i] for i in rows])["net_input"]["src_tokens"]
        assert (tokens[:, 0] == task.source_dictionary.bos()).all()
        with torch.no_grad():
            output: torch.Tensor = model(tokens, classification_head_name=head)[0]
        return output

    together, alone = predict([0, 1, 2]), torch.cat([predict([i]) for i in range(3)])
    assert together.shape == (3, num_classes)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flag", ["--layernorm-embedding", "--no-layernorm-embedding"])
def test_flags_mean_what_they_say(flag: str, data: Path, tmp_path: Path) -> None:
    """fairseq's parser of dataclasses would let ``--layernorm-embedding`` turn it off."""
    places = {"task.data": data, "checkpoint.save_dir": tmp_path}
    settings = {**MASKED_LM, **places, f"model.{flag[2:].replace('-', '_')}": True}
    with stopping_before_training() as built:
        fairseq_train(settings)
    norm = built.value.model.encoder.sentence_encoder.layernorm_embedding
    assert (norm is None) == flag.startswith("--no-")


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (
            {"attention_type": "linear", "position_encoding": "t5"},
            ("linear attention cannot use the encoding 't5'", "attention_type=vanilla"),
        ),
        ({"max_positions": 8}, ("`tokens_per_sample` must be at most max_positions=8", "16")),
        ({"mha_heads_to_keep": 2}, ("`mha_heads_to_keep` must be -1", "2")),
    ],
)
def test_refused(model: dict[str, Any], parts: tuple[str, ...], data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(parts[0])) as error:
        pretrain(tmp_path, data, {f"model.{name}": value for name, value in model.items()})
    assert all(part in str(error.value) for part in parts)
