"""`fairseq-pe analyse extrapolation`, on models trained for a few updates."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_plugins.__main__ import main
from fairseq_plugins.common.errors import CheckpointError, OptionError
from fairseq_plugins.evaluation import beyond_training
from fairseq_plugins.evaluation import language_model as evaluation
from fairseq_plugins.evaluation.samples import MaskedSamples
from fairseq_plugins.modules.adaptation import Adaptation
from tests.hostile import with_options
from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_train,
    load_checkpoint,
    read_tokens,
    saving_to,
)
from tests.integration.test_roberta import model_of, pretrain


def words(path: Path, data: Path, *more: str) -> list[str]:
    own = ["--path", str(path), "--data", str(data), "--split", "valid", "--cpu"]
    return ["analysis", "extrapolation", *own, *more]


def measured(capsys: pytest.CaptureFixture, path: Path, data: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(words(path, data, *more)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_losses_are_those_of_the_model(
    attention: str, data: Path, checkpoints: dict[str, Path], capsys
) -> None:
    path = checkpoints[attention]
    picture = path.parent / "x.pdf"
    more = ["--lengths", "4x,1x", "--tokens", "128", "--output", str(picture)]
    found = measured(capsys, path, data, *more)
    assert picture.read_bytes().startswith(b"%PDF")
    assert found["trained_length"] == TOKENS_PER_SAMPLE and len(found["checkpoint"]) == 64
    assert list(found["lengths"]) == ["1x", "4x"]
    model, eos = evaluation.load(evaluation.EvaluationOptions(path, data)).model, 2
    text = torch.tensor(list(read_tokens(data, "valid"))[:128])
    inputs = torch.cat([torch.tensor([eos]), text[:-1]])

    def losses(length: int, starts: range, last: int) -> torch.Tensor:
        windows = torch.stack([inputs[i : i + length] for i in starts])
        targets = torch.stack([text[i : i + length] for i in starts])
        with torch.no_grad():
            log_probs = model(windows)[0].log_softmax(-1)
        return -log_probs.gather(2, targets.unsqueeze(2)).squeeze(2)[:, -last:] / math.log(2)

    for name, line in found["lengths"].items():
        length = int(name[0]) * TOKENS_PER_SAMPLE
        whole = losses(length, range(0, 128, length), length)
        assert (line["length"], line["tokens"]) == (length, 128)
        assert line["bits"] == pytest.approx(float(whole.mean()), abs=1e-5)
        expected = whole.mean(0).view(-1, TOKENS_PER_SAMPLE // 4).mean(1)
        assert line["by_position"] == pytest.approx(expected.tolist(), abs=1e-5)
        stride = length // 4
        first = losses(length, range(0, 1), length).flatten()
        later = losses(length, range(stride, 129 - length, stride), stride).flatten()
        sliding = float(torch.cat([first, later]).mean())
        assert line["sliding_bits"] == pytest.approx(sliding, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("none+yarn", "yarn."),
        pytest.param("yarn", "", marks=pytest.mark.slow),
        pytest.param("rope_interpolated", "", marks=pytest.mark.slow),
    ],
)
def test_a_stretched_encoding_takes_the_factor_of_each_length(
    name: str, prefix: str, rope: Path, data: Path, tmp_path: Path, capsys
) -> None:
    common = ["--lengths", "1x,4x", "--tokens", "128"]
    own = measured(capsys, rope, data, *common)["lengths"]
    found = measured(capsys, rope, data, *common, "--encoding", name)["lengths"]
    assert found["4x"] != own["4x"]
    assert (found["1x"] == own["1x"]) == (not name.startswith("none"))
    for factor in (1, 4):
        words = f"{prefix}factor={factor}"
        path = with_options(
            rope, tmp_path / "x.pt", position_encoding=name, position_encoding_options=words
        )
        alone = measured(capsys, path, data, "--lengths", f"{factor}x", "--tokens", "128")
        assert alone["lengths"][f"{factor}x"] == found[f"{factor}x"]
    given = ["--encoding", name, "--options", f"{prefix}factor=4"]
    given_4 = measured(capsys, rope, data, *common, *given)["lengths"]
    assert given_4["4x"] == found["4x"] and given_4["1x"] != found["1x"]


def test_learned_angles_are_stretched_where_they_are_by_now(
    data: Path, checkpoints: dict[str, Path], capsys
) -> None:
    path, common = checkpoints["linear"], ["--lengths", "1x,4x", "--tokens", "128"]
    own = measured(capsys, path, data, *common)["lengths"]
    found = measured(capsys, path, data, *common, "--encoding", "yarn_lrpe")["lengths"]
    assert found["1x"]["bits"] == pytest.approx(own["1x"]["bits"], abs=1e-6)
    assert found["4x"]["bits"] != pytest.approx(own["4x"]["bits"], abs=1e-6)


@pytest.fixture(scope="module")
def rope(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rope")
    settings = saving_to(folder, data, position_encoding="rope", attention_type="vanilla")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    return folder / "checkpoint_last.pt"


def test_a_length_without_a_meaning_has_a_reason(data: Path, tmp_path: Path, capsys) -> None:
    settings = saving_to(tmp_path, data, position_encoding="learned", attention_type="vanilla")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    path = tmp_path / "checkpoint_last.pt"
    found = measured(capsys, path, data, "--lengths", "1x,2x", "--tokens", "64")["lengths"]
    assert found["1x"]["bits"] > 0
    assert set(found["2x"]) == {"length", "reason"}
    about = f"`learned` under vanilla attention has no meaning beyond position {TOKENS_PER_SAMPLE}"
    assert found["2x"]["reason"] == about
    table = load_checkpoint(path)["model"][(name := "decoder.position_embedding.weight")]
    for how in ("copy", "interpolate", "hierarchical"):
        words = ["--lengths", "1x,2x,4x", "--tokens", "64", "--grow-table", how]
        grown = measured(capsys, path, data, *words)["lengths"]
        assert grown["1x"]["bits"] == pytest.approx(found["1x"]["bits"], abs=1e-5)
        request = evaluation.EvaluationOptions(path, data, adaptation=Adaptation(grow_table=how))
        longer = evaluation.load(request, 4 * TOKENS_PER_SAMPLE).model
        rows = longer.state_dict()[name]
        assert len(rows) == longer.max_positions() == 4 * TOKENS_PER_SAMPLE
        torch.testing.assert_close(rows[0], table[0])
        last = -1 if how == "interpolate" else TOKENS_PER_SAMPLE - 1
        torch.testing.assert_close(rows[last], table[-1])
        assert math.isfinite(grown["4x"]["bits"])


def test_losses_that_are_not_finite_are_a_reason(
    data: Path, rope: Path, tmp_path: Path, capsys
) -> None:
    state = load_checkpoint(rope)
    state["model"]["decoder.layers.0.fc1.weight"].fill_(3e38)  # finite weights
    torch.save(state, tmp_path / "nan.pt")
    words = ["--lengths", "1x", "--tokens", "64"]
    found = measured(capsys, tmp_path / "nan.pt", data, *words)["lengths"]
    assert "losses of a batch are not finite" in found["1x"]["reason"]


def test_a_table_that_cannot_be_grown_so_far_has_a_reason(
    data: Path, tmp_path: Path, capsys
) -> None:
    settings = saving_to(tmp_path, data, position_encoding="learned", attention_type="vanilla")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    far = 2 * TOKENS_PER_SAMPLE
    more = ["--lengths", f"1x,{far}x", "--grow-table", "hierarchical", "--split", "train"]
    path = tmp_path / "checkpoint_last.pt"
    found = measured(capsys, path, data, *more, "--tokens", str(2 * TOKENS_PER_SAMPLE**2))
    assert f"at most {TOKENS_PER_SAMPLE**2} positions" in found["lengths"][f"{far}x"]["reason"]


def test_what_is_wrong_with_the_checkpoint_is_no_reason(
    data: Path, rope: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """It is read again for each length."""
    load = evaluation.load

    def damaged_by_now(request: evaluation.EvaluationOptions, length: int | None = None) -> Any:
        if length is not None:
            raise CheckpointError("x.pt is cut off")
        return load(request)

    monkeypatch.setattr(beyond_training, "load", damaged_by_now)
    more = ["--lengths", "1x,2x", "--tokens", "128", "--encoding", "yarn"]
    assert main(words(rope, data, *more)) == 2
    assert "x.pt is cut off" in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture(scope="module")
def masked(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = {**model_of("vanilla", "rope"), "model.no_token_positional_embeddings": True}
    return pretrain(tmp_path_factory.mktemp("masked") / "model", data, model)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--lengths", "1x,2x", "--tokens", "31"],
            "--tokens must be at least 32, one sample of the longest length, but is 31",
        ),
        (
            ["--lengths", "1x,4096x", "--tokens", "65536"],
            "valid must fill a sample of 65536 tokens, but has ",
        ),
    ],
)
def test_too_little_for_a_masked_model_is_no_reason(
    more: list[str], message: str, data: Path, masked: Path, capsys
) -> None:
    assert main(words(masked, data, *more)) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_that_no_token_is_masked_is_no_reason(
    data: Path, masked: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    none = torch.zeros(TOKENS_PER_SAMPLE), torch.zeros(TOKENS_PER_SAMPLE, dtype=torch.int64)
    monkeypatch.setattr(beyond_training, "masked_by_position", lambda *_, **__: none)
    assert main(words(masked, data, "--lengths", "1x", "--tokens", "16")) == 2
    message = "--tokens must be large enough for a masked token in samples of 16, but is 16"
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_masked_losses_are_those_of_the_criterion(data: Path, masked: Path, capsys) -> None:
    path = masked
    found = measured(capsys, path, data, "--lengths", "1x,2x", "--tokens", "128")["lengths"]
    assert "sliding_bits" not in found["1x"] and len(found["2x"]["by_position"]) == 8
    trained = evaluation.load(evaluation.EvaluationOptions(path, data))
    for line in found.values():
        length = line["length"]
        cut = {"length": length, "break_mode": "none", "seed": 1}
        samples = MaskedSamples(data, "valid", trained.task, **cut)
        samples.dataset.set_epoch(1)
        items = [samples.dataset[i] for i in range(128 // length)]
        batch = samples.dataset.collater(items)
        batch["target"][:, 0] = samples.task.source_dictionary.pad()  # <s> is not scored
        score = samples.score(trained.model, batch)
        assert line["tokens"] == score.predicted
        assert line["bits"] == pytest.approx(score.bits / score.predicted, abs=1e-5)
    samples = MaskedSamples(data, "valid", trained.task, length=16, break_mode="none", seed=1)
    bits, count = beyond_training.masked_by_position(trained.model, samples, 8, batch_size=3)
    assert float(bits.sum() / count.sum()) == pytest.approx(found["1x"]["bits"], abs=1e-6)
    often = OmegaConf.merge(OmegaConf.create(trained.task), {"mask_prob": 0.8})
    samples = MaskedSamples(data, "valid", often, length=16, break_mode="none", seed=1)
    _, count = beyond_training.masked_by_position(trained.model, samples, 8, batch_size=3)
    assert count[0] == 0 and (count[1:] > 0).all(), "<s> is masked then, and never scored"
    paired = OmegaConf.merge(OmegaConf.create(trained.task), {"pairs": True})
    with pytest.raises(OptionError, match="trained without --pairs"):
        MaskedSamples(data, "valid", paired, length=16, seed=1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--lengths", "997x,991x,983x"], "--tokens must fill a window of"),
        (["--tokens", "0"], "--tokens must be at least 1, but is 0"),
        (["--tokens", "99999999999"], "--tokens must be at most 2,147,483,647"),
        (["--encoding", "learned"], "--encoding must need no other weights"),
        (["--encoding", "learned"], "Missing key(s) in state_dict: "),
        (["--encoding", "rope"], "Unexpected key(s) in state_dict: "),
        (["--encoding", "yarn", "--options", "faktor=2"], "Did you mean 'factor'?"),
        (["--encoding", "xl"], "linear attention cannot use the encoding 'xl'"),
        (["--options", "factor=2"], "--options must go with --encoding, but is 'factor=2' alone"),
        (["--grow-table", "copy"], "--grow-table needs a learned table"),
        (["--grow-table", "grow"], "--grow-table must be one of copy, hierarchical, interpolate"),
        (
            ["--grow-table", "copy", "--encoding", "base"],
            "must be without --encoding",
        ),
        (["--tokens", "15"], "must fill a window of 128 tokens"),
    ],
)
def test_what_cannot_be_is_named(
    more: list[str], message: str, data: Path, checkpoints: dict[str, Path], capsys
) -> None:
    assert main(words(checkpoints["linear"], data, *more)) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
