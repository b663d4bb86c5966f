"""The command that probes a checkpoint, on models trained for three updates."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_plugins.analysis.indicators import measure
from fairseq_plugins.cli.analyse import main
from fairseq_plugins.cli.analyse import main as analysis
from tests.hostile import naming_another_model
from tests.integration.helpers import TOKENS_PER_SAMPLE
from tests.integration.test_roberta import model_of, pretrain


def probe(capsys: pytest.CaptureFixture, checkpoint: Path, data: Path, *words: str) -> dict:
    command = ["identical-words", "--path", str(checkpoint), "--data", str(data), "--cpu", *words]
    assert main(command) == 0
    found: dict = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_what_is_printed_is_that_of_the_weights(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    checkpoint = pretrain(tmp_path / "model", data, model_of("vanilla", "learned+shaw"))
    output = tmp_path / "new" / "weights.npy"
    found = probe(capsys, checkpoint, data, "--output", str(output))
    assert (found["words"], found["length"]) == (30, TOKENS_PER_SAMPLE)  # all that there are
    weights = np.load(output)
    assert weights.shape == (TOKENS_PER_SAMPLE, TOKENS_PER_SAMPLE)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    measured = measure(torch.from_numpy(weights).double())
    assert found["metrics"] == pytest.approx(measured, rel=0.02, abs=1e-6)
    assert probe(capsys, checkpoint, data) == found
    assert probe(capsys, checkpoint, data, "--output", str(tmp_path / "x.svg")) == found
    assert (tmp_path / "x.svg").read_bytes().startswith(b"<?xml")
    fewer = probe(capsys, checkpoint, data, "--words", "9", "--length", "8", "--seed", "2")
    assert (fewer["words"], fewer["length"]) == (9, 8)


def test_a_language_model_is_probed_too(
    data: Path, checkpoints: dict[str, Path], capsys: pytest.CaptureFixture
) -> None:
    found = probe(capsys, checkpoints["vanilla"], data, "--length", "12")
    assert (found["model"], found["length"]) == ("pe_transformer_lm", 12)
    assert found["infinite"] == ["direction_balance"]
    assert found["metrics"]["direction_balance"] is None
    assert found["metrics"]["symmetry"] > 0


def test_what_cannot_be_probed_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    checkpoint = pretrain(tmp_path / "model", data, model_of("linear", "lrpe_type2"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "dict.txt").write_text("a 3\nb 2\n")
    cases = {
        (checkpoint, data): "`attention_type` must be 'vanilla', but is 'linear'",
        (checkpoint, data, "--length", "17"): "`length` must be at least 4 and at most",
        (checkpoint, other): "dict.txt has 7",
        (tmp_path / "none.pt", data): "--path must be an existing file, but is",
    }
    for (path, folder, *words), message in cases.items():
        command = ["identical-words", "--path", str(path), "--data", str(folder), "--cpu", *words]
        assert main(command) == 2
        assert message in capsys.readouterr().err


def test_a_checkpoint_that_names_another_model_is_not_built(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """fairseq would evaluate its options as Python."""
    path, marker = tmp_path / "x.pt", tmp_path / "ran"
    checkpoint = pretrain(tmp_path / "model", data, model_of("vanilla", "base"))
    naming_another_model(checkpoint, path, marker)
    assert main(["identical-words", "--path", str(path), "--data", str(data), "--cpu"]) == 2
    known = "pe_roberta or pe_transformer_lm or pe_transformer"
    assert f"x.pt must be a {known}, but is a fconv_lm" in capsys.readouterr().err
    assert not marker.exists()


@pytest.mark.parametrize(
    "number", ["9", *(pytest.param(n, marks=pytest.mark.slow) for n in ("1", "8", "10", "11"))]
)
def test_figures_are_made_of_checkpoints(
    number: str, data: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    masked = pretrain(tmp_path / "model", data, model_of("vanilla", "learned+shaw"))
    stem = tmp_path / "figures" / "x"
    words = ["--checkpoint", f"ours={masked}"]
    if number != "9":  # which is of models that hide no key
        words += ["--checkpoint", f"lm={checkpoints['vanilla']}"]
    words += ["--data", str(data), "--output", str(stem), "--words", "4", "--cpu"]
    assert analysis(["figure", number, *words, "--length", "12"]) == 0
    assert {path.name for path in stem.parent.iterdir()} == {
        f"x.{kind}" for kind in ("png", "svg", "json", "md")
    }
    page = stem.with_suffix(".md").read_text()
    model = "- ours: `pe_roberta`, 2 layers of 32 features, 4 heads, learned+shaw; bin, 3 updates"
    assert model in page
    assert "**The paper found**" in page and str(tmp_path) not in page


def test_figure_9_names_the_model_that_hides_keys(
    data: Path, checkpoints: dict[str, Path], capsys: pytest.CaptureFixture
) -> None:
    words = ["--checkpoint", f"lm={checkpoints['vanilla']}", "--data", str(data), "--cpu"]
    assert analysis(["figure", "9", *words]) == 2
    assert "but lm is a causal pe_transformer_lm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["9"], "--checkpoint must be given for figure 9"),
        (["3", "--checkpoint", __file__, "--data", "."], "must be left out with figure 3"),
        (["1", "--checkpoint", __file__], "--data must be given once"),
        (["1", "--length", "2"], "--length must be at least 4, but is 2"),
        (
            ["1", *["--checkpoint", "a=x.pt"] * 2, "--data", "d"],
            "--checkpoint must have a LABEL of its own",
        ),
        (["5", "--scale", "paper"], "figure 5 needs properties by offset of at least 4 rows"),
    ],
)
def test_figures_that_cannot_be_made_say_why(
    words: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    assert analysis(["figure", *words]) == 2
    assert message in capsys.readouterr().err
