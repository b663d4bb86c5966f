"""``pe_transformer`` through fairseq's commands: training, search, one by one or in batches."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.cli.analyse import main as analysis
from fairseq_plugins.common.checkpoints import read_checkpoint
from tests.integration.conftest import PAIRS
from tests.integration.helpers import (
    ENCODING_DEFAULTS,
    TINY,
    fairseq_generate,
    fairseq_hydra_train,
    fairseq_interactive,
    fairseq_train,
    fairseq_validate,
    load_checkpoint,
    load_model,
    logged_by_fairseq,
    losses,
    overrides,
    record_draws,
)

Settings = dict[str, Any]

LONGEST = 24

TRANSLATION: Settings = {
    **{name: v for name, v in TINY.items() if name.split(".")[0] not in ("model", "task")},
    "model._name": "pe_transformer",
    "model.encoder_layers": 2,
    "model.encoder_embed_dim": 32,
    "model.encoder_ffn_embed_dim": 32,
    "model.encoder_attention_heads": 4,
    "model.decoder_layers": 2,
    "model.decoder_attention_heads": 4,
    "model.dropout": 0.0,
    "model.max_source_positions": LONGEST,
    "model.max_target_positions": LONGEST,
    "task._name": "translation",
    "task.source_lang": "en",
    "task.target_lang": "de",
    "criterion._name": "label_smoothed_cross_entropy",
    "criterion.label_smoothing": 0.1,
    "dataset.batch_size": 16,
}

# Name to options of the model; each place has its turn.
MODELS: dict[str, dict[str, str]] = {
    "table4": {"position_encoding": "lrpe_type2", "encoder_attention_type": "linear"},
    "linear": {"position_encoding": "lrpe_type4", "attention_type": "linear"},
    "spe": {"position_encoding": "spe", "attention_type": "linear"},
    "all": {
        "position_encoding": "t5",
        "decoder_attention_type": "linear",
        "decoder_position_encoding": "rope",
        "decoder_position_encoding_options": "layout=half_split",
        "cross_position_encoding": "shaw_keys",
        "cross_position_encoding_options": "max_distance=4",
    },
}


def _saving_to(folder: Path, pairs: Path, model: dict[str, str], updates: int) -> Settings:
    named = {f"model.{name}": value for name, value in model.items()}
    places = {"task.data": pairs, "checkpoint.save_dir": folder}
    budget = {"optimization.max_update": updates}
    return {**TRANSLATION, **places, **named, **budget}


@pytest.fixture(scope="module")
def checkpoints(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models trained so far that their words differ."""
    result = {}
    for name, model in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        fairseq_train(
            {**_saving_to(folder, pairs, model, 30), "checkpoint.save_interval_updates": 0}
        )
        result[name] = folder / "checkpoint_last.pt"
    return result


def _generate(pairs: Path, checkpoint: Path, results: Path, *words: str) -> dict[str, Any]:
    """For each sentence the hypotheses of fairseq-generate: words and scores."""
    fairseq_generate(
        pairs,
        checkpoint,
        *("--task", "translation", "--beam", "3", "--nbest", "2", "--max-len-b", "14"),
        # With its default of 8, fairseq leaves out a last batch that is no multiple of 8.
        *("--required-batch-size-multiple", "1", "--results-path", str(results), *words),
    )
    printed: dict[str, Any] = {}
    for line in (results / "generate-test.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("H-"):
            number, score, text = line[2:].split("\t")
            printed.setdefault(number, []).append((text, float(score)))
    return printed


@pytest.mark.parametrize("name", [pytest.param("table4", marks=pytest.mark.slow), "all"])
def test_both_routes_train_the_same(name: str, pairs: Path, tmp_path: Path) -> None:
    """Flags and YAML are two ways to say the same; the loss falls."""
    model = MODELS[name]
    fairseq_train(_saving_to(tmp_path / "flags", pairs, model, 6))
    yaml = _saving_to(tmp_path / "hydra", pairs, {}, 6)
    own = {f"model.{option}": "" for option in model} | ENCODING_DEFAULTS
    fairseq_hydra_train(
        tmp_path / "yaml",
        {**yaml, **own},
        *overrides({f"model.{option}": value for option, value in model.items()}),
    )
    history = losses(tmp_path / "flags")
    assert history == losses(tmp_path / "hydra")
    assert history[6] < history[1]


@pytest.mark.parametrize("name", ["table4", pytest.param("all", marks=pytest.mark.slow)])
def test_training_without_logits(name: str, pairs: Path, tmp_path: Path) -> None:
    for kind in ("", "blockwise_"):
        criterion = {"criterion._name": f"{kind}label_smoothed_cross_entropy"}
        fairseq_train({**_saving_to(tmp_path / f"{kind}run", pairs, MODELS[name], 6), **criterion})
    expected = losses(tmp_path / "run")
    assert losses(tmp_path / "blockwise_run") == pytest.approx(expected, rel=1e-5)


def test_validation_without_logits(pairs: Path, tmp_path: Path) -> None:
    """Accuracy, and BLEU, for which fairseq has the model itself make logits."""
    shown = []
    for kind in ("", "blockwise_"):
        options = {
            "criterion._name": f"{kind}label_smoothed_cross_entropy",
            "criterion.report_accuracy": True,
            "task.eval_bleu": True,
            "task.eval_bleu_args": '{"beam": 2, "max_len_b": 12}',
            "dataset.disable_validation": False,
        }
        settings = {**_saving_to(tmp_path / f"{kind}x", pairs, MODELS["table4"], 8), **options}
        with logged_by_fairseq() as messages:
            fairseq_train(settings)
        if kind:  # BLEU's meters hold NumPy's numbers, with which a training can go on
            fairseq_train({**settings, "optimization.max_update": 9})
            state = read_checkpoint(tmp_path / f"{kind}x" / "checkpoint_last.pt")
            assert state["optimizer_history"][-1]["num_updates"] == 9
        shown.append([json.loads(line) for line in messages if "valid_bleu" in line])
    theirs, ours = shown
    assert len(theirs) == len(ours) > 0
    for one, other in zip(ours, theirs, strict=True):
        for key in ("valid_loss", "valid_nll_loss", "valid_accuracy", "valid_bleu"):
            assert float(one[key]) == pytest.approx(float(other[key]), rel=1e-3), key
    assert float(theirs[-1]["valid_accuracy"]) > 0


@pytest.mark.parametrize("name", MODELS)
def test_checkpoint_is_plain(name: str, checkpoints: dict[str, Path]) -> None:
    """fairseq's commands load it, with weights_only=True, as the model that was trained."""
    path = checkpoints[name]
    state = load_checkpoint(path)
    assert state["args"] is None
    assert state["cfg"]["model"]["_name"] == "pe_transformer"
    assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []
    model, task = load_model(path)
    assert model.max_positions() == (LONGEST, LONGEST)
    assert model.cfg.decoder.embed_dim == 32
    for option, value in model.state_dict().items():
        assert torch.equal(value, state["model"][option]), option
    assert task.cfg.source_lang == "en"


@pytest.mark.parametrize("name", ["table4", "linear", "all"])
def test_generate(name: str, pairs: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Every sentence once, and in batches what each gets alone."""
    results = [
        _generate(pairs, checkpoints[name], tmp_path / size, "--batch-size", size)
        for size in ("1", "4")
    ]
    assert sorted(results[0]) == sorted(map(str, range(PAIRS["test"])))
    assert len({text for beam in results[0].values() for text, _ in beam}) > 3
    for number, beam in results[0].items():
        others = results[1][number]
        assert [text for text, _ in beam] == [text for text, _ in others]
        assert [s for _, s in beam] == pytest.approx([s for _, s in others], abs=2e-4)


def test_overrides_of_no_option_are_refused(
    pairs: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """As those that prune layers of fairseq's own model, after training with LayerDrop."""
    words = ["--model-overrides", "{'decoder_layers_to_keep': '0'}"]
    with pytest.raises(ValueError, match=r"`model_overrides` .* has 'decoder_layers_to_keep'"):
        _generate(pairs, checkpoints["table4"], tmp_path, *words)


@pytest.mark.slow
def test_interactive(
    pairs: Path,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = tmp_path / "text.en"
    text.write_text("w1 w2 w3 w4 w5\nw7\nw3 w3 w9\n", encoding="utf-8")
    printed = []
    for size in ("1", "3"):
        words = ["--task", "translation", "--input", str(text), "--beam", "3"]
        words += ["--batch-size", size, "--buffer-size", size]
        fairseq_interactive(pairs, checkpoints["table4"], *words)
        lines = capsys.readouterr().out.splitlines()
        printed.append([re.sub(r"\t-?[\d.]+\t", "\t", x) for x in lines if x.startswith("H-")])
    assert printed[0] == printed[1]
    assert len(printed[0]) == 3


@pytest.mark.slow
def test_searches_of_a_stochastic_encoding_are_reproducible(
    pairs: Path, checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--seed`` counts, not the state that a command begins in."""
    drawn = record_draws(monkeypatch)
    runs = []
    for before, words in ((1, []), (2, []), (2, ["--seed", "7"]), (3, ["--seed", "7"])):
        torch.manual_seed(before)
        del drawn[:]
        result = _generate(pairs, checkpoints["spe"], tmp_path, "--batch-size", "4", *words)
        runs.append((result, list(drawn)))
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert runs[0][1] != runs[2][1]


def test_validation_of_a_stochastic_encoding_is_reproducible(
    pairs: Path, checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq-validate seeds nothing itself."""
    drawn, runs = record_draws(monkeypatch), []
    for before in (1, 2):
        torch.manual_seed(before)
        del drawn[:]
        fairseq_validate(pairs, checkpoints["spe"], "--task", "translation")
        runs.append(list(drawn))
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(runs[0]) > 4


def test_the_encoder_is_probed_with_identical_words(
    pairs: Path, checkpoints: dict[str, Path], capsys: pytest.CaptureFixture
) -> None:
    where = ["--path", str(checkpoints["all"]), "--data", str(pairs)]
    assert analysis(["identical-words", *where, "--length", "9", "--cpu"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["model"], found["words"], found["length"]) == ("pe_transformer", 9, 9)
    assert not found["infinite"] and found["metrics"]["direction_balance"] > 0
