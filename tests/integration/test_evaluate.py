"""``python -m fairseq_plugins evaluate``, against fairseq's own commands."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.criterions.masked_lm import MaskedLmLoss

from fairseq_plugins.__main__ import main
from fairseq_plugins.modules.identity import TRANSLATION
from tests import checkpoints as tiny
from tests.hostile import expression, naming_another_model, rewritten, with_options
from tests.integration.helpers import (
    REPOSITORY,
    TOKENS_PER_SAMPLE,
    fairseq_eval_lm,
    fairseq_train,
    fairseq_validate,
    load_checkpoint,
    read_tokens,
    saving_to,
)
from tests.integration.test_roberta import model_of, pretrain


@pytest.fixture(autouse=True)
def _one_draw() -> None:
    """In place of the suite's: stochastic encodings draw as they do for a user."""


def evaluate(path: Path, data: Path, output: Path, *words: str) -> dict[str, Any]:
    """The JSON of the command."""
    line = ["evaluate", "--path", str(path), "--data", str(data), "--device", "cpu"]
    assert main([*line, "--output", str(output), *words]) == 0
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def bits(found: dict[str, Any], index: int = 0) -> float:
    return float(found["lengths"][index]["per_token"]["bits"])


def refused(capsys: pytest.CaptureFixture[str], path: Path, data: Path, *words: str) -> str:
    capsys.readouterr()
    try:
        status = main(["evaluate", "--path", str(path), "--data", str(data), *words])
    except SystemExit as stop:  # of the parser
        status = stop.code
    assert status == 2
    error = capsys.readouterr().err
    assert error.startswith("fairseq-pe evaluate: error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_it_agrees_with_eval_lm(
    attention: str, window: int, data: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    words = ["--context-window", str(window), "--batch-size", "3"]
    found = evaluate(checkpoints[attention], data, tmp_path / "x.json", *words)
    (line,) = found["lengths"]
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    reported = fairseq_eval_lm(data, checkpoints[attention], *sample, *words)
    assert bits(found) == pytest.approx(float(reported["loss"]), abs=1e-6)
    assert line["per_token"]["perplexity"] == pytest.approx(2 ** bits(found))
    total = len(read_tokens(data, "valid"))
    assert (line["tokens"], line["skipped"], line["predicted"]) == (total, 0, total)
    assert line["length"] == TOKENS_PER_SAMPLE


@pytest.mark.parametrize("mode", ["complete", "eos"])
def test_other_ways_to_cut_text(
    mode: str, data: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    words = ["--sample-break-mode", mode, "--batch-size", "3"]
    found = evaluate(checkpoints["vanilla"], data, tmp_path / "x.json", *words)
    sample = ["--tokens-per-sample", str(TOKENS_PER_SAMPLE)]
    reported = fairseq_eval_lm(data, checkpoints["vanilla"], *sample, *words)
    assert bits(found) == pytest.approx(float(reported["loss"]), abs=1e-6)


def test_several_lengths(data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys) -> None:
    """Each is what it is alone, in the order asked for."""
    checkpoint = checkpoints["linear"]
    found = evaluate(checkpoint, data, tmp_path / "x.json", "--lengths", "64,8,128")
    assert [line["length"] for line in found["lengths"]] == [64, 8, 128]
    printed = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in printed if re.match(r" *\d", line)]
    assert [row[0] for row in rows] == ["64", "8", "128"]
    for index, length in enumerate((64, 8, 128)):
        reported = fairseq_eval_lm(data, checkpoint, "--tokens-per-sample", str(length))
        assert bits(found, index) == pytest.approx(float(reported["loss"]), abs=1e-6)
        assert rows[index][4] == f"{bits(found, index):.4f}"


def test_another_encoding_is_stretched_to_each_length(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    checkpoint, words = checkpoints["linear"], ["--encoding", "yarn_lrpe"]
    found = evaluate(checkpoint, data, tmp_path / "x.json", "--lengths", "64,16,8", *words)
    assert found["checkpoint"]["position_encoding"] == "yarn_lrpe"
    assert found["adaptation"] == {"encoding": "yarn_lrpe", "options": "", "grow_table": ""}
    for index, (length, factor) in enumerate(((64, 4), (16, 1), (8, 1))):
        given = ["--lengths", str(length), *words, "--options", f"factor={factor}"]
        alone = evaluate(checkpoint, data, tmp_path / "y.json", *given)
        assert bits(alone) == bits(found, index)
    own = evaluate(checkpoint, data, tmp_path / "x.json", "--lengths", "64,16")
    assert own["adaptation"] is None and own["checkpoint"]["position_encoding"] == "lrpe_type2"
    assert bits(own, 1) == pytest.approx(bits(found, 1), abs=1e-6)
    assert bits(own, 0) != pytest.approx(bits(found, 0), abs=1e-6)
    assert "--encoding" in refused(capsys, checkpoint, data, "--encoding", "learned")


def test_draws_are_those_of_eval_lm(data: Path, tmp_path: Path) -> None:
    """And the same at every call and in any company."""
    settings = saving_to(tmp_path, data, position_encoding="spe", attention_type="linear")
    fairseq_train({**settings, "checkpoint.save_interval_updates": 0})
    path, output = tmp_path / "checkpoint_last.pt", tmp_path / "x.json"
    words = ["--lengths", "32,16", "--batch-size", "4"]
    torch.manual_seed(7)
    found = evaluate(path, data, output, *words)
    torch.manual_seed(8)
    again = evaluate(path, data, output, *words)
    assert again["lengths"] == found["lengths"]
    sample = ["--tokens-per-sample", "16", "--batch-size", "4", "--seed", "1"]
    assert bits(found, 1) == pytest.approx(
        float(fairseq_eval_lm(data, path, *sample)["loss"]), 1e-6
    )
    other = evaluate(path, data, output, *words, "--seed", "2")
    assert bits(other) != bits(found)


@pytest.mark.parametrize("mode", ["none", "complete"])
def test_masked_words_are_those_of_validation(
    mode: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**model_of("vanilla", "base"), "task.sample_break_mode": mode}
    path = pretrain(tmp_path, data, options)
    found = evaluate(path, data, tmp_path / "x.json", "--batch-size", "4", "--allow-skipped")
    logs: list[dict[str, Any]] = []
    monkeypatch.setattr(MaskedLmLoss, "reduce_metrics", staticmethod(logs.extend))
    # With batches of a multiple of 8, its default, it leaves out those beyond the last one.
    words = ["--skip-invalid-size-inputs-valid-test", "--required-batch-size-multiple", "1"]
    fairseq_validate(data, path, "--task", "masked_lm", *words)
    loss, predicted = (float(sum(log[name] for log in logs)) for name in ("loss", "sample_size"))
    assert bits(found) == pytest.approx(loss / predicted / math.log(2), abs=1e-6)
    (line,) = found["lengths"]
    total = len(read_tokens(data, "valid"))
    assert line["tokens"] + line["skipped"] == total
    assert 0.1 * line["tokens"] < line["predicted"] < 0.2 * line["tokens"]
    assert found["masking"]["mask_prob"] == 0.15
    assert line["per_word"] is line["per_byte"] is None


def test_a_masked_model_at_another_length(data: Path, tmp_path: Path, capsys) -> None:
    options = {**model_of("linear", "none"), "task.sample_break_mode": "none"}
    path = pretrain(tmp_path, data, options)
    words = ["--lengths", f"{TOKENS_PER_SAMPLE},{4 * TOKENS_PER_SAMPLE}"]
    found = evaluate(path, data, tmp_path / "x.json", *words)
    assert evaluate(path, data, tmp_path / "x.json", *words)["lengths"] == found["lengths"]
    assert {line["skipped"] for line in found["lengths"]} == {0}
    assert "masked: 15% of the tokens are predicted" in capsys.readouterr().out
    assert "--context-window must be 0 with a masked model" in refused(
        capsys, path, data, "--context-window", "3"
    )


def test_a_length_that_has_no_meaning_is_refused(data: Path, tmp_path: Path, capsys) -> None:
    """Where fairseq-eval-lm scores what is left, or nothing."""
    for name in ("learned", "cosformer"):
        folder = tmp_path / name
        fairseq_train(saving_to(folder, data, position_encoding=name, attention_type="linear"))
        error = refused(capsys, folder / "checkpoint_last.pt", data, "--lengths", "16,17")
        assert f"--lengths must be at most 16, the maximum of `{name}` under linear" in error
        assert error.rstrip().endswith("but is 17")
    path = pretrain(tmp_path / "masked", data, model_of("vanilla", "rope"))
    error = refused(capsys, path, data, "--lengths", "4096")
    assert "the maximum of `rope` beside `learned` under vanilla attention" in error


def test_skipped_tokens_are_refused_unless_allowed(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    words = ["--lengths", "8", "--sample-break-mode", "eos"]
    error = refused(capsys, checkpoints["vanilla"], data, *words)
    (skipped, total) = re.search(r"(\d+) of (\d+) tokens would be skipped", error).groups()
    longest = re.search(r"--lengths must be at least (\d+) for every sample", error)[1]
    found = evaluate(checkpoints["vanilla"], data, tmp_path / "x.json", *words, "--allow-skipped")
    (line,) = found["lengths"]
    assert (line["skipped"], line["tokens"] + line["skipped"]) == (int(skipped), int(total))
    assert line["per_word"] is None
    found = evaluate(
        checkpoints["vanilla"], data, tmp_path / "x.json", *words[2:], "--lengths", longest
    )
    assert found["lengths"][0]["skipped"] == 0


def test_words_and_bytes_of_the_text(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    """Of the same bits, in whatever units the data is."""
    found = evaluate(checkpoints["vanilla"], data, tmp_path / "x.json")
    assert found["lengths"][0]["per_word"] is None
    assert "per word and byte: the folder has no data.json" in capsys.readouterr().out
    folder = tmp_path / "data"
    folder.mkdir()
    for path in data.iterdir():
        (folder / path.name).symlink_to(path)
    text = (data.parent / "valid.txt").read_bytes()
    lines, words = text.count(b"\n"), len(text.split())
    made = {"words": words, "lines": lines, "bytes": 1, "sha256": "x", "unknown_words": 0}
    raw = {"words": words - 30, "lines": lines, "bytes": len(text), "sha256": "y"}
    about = {"raw": {"valid": raw}, "splits": {"valid": made}}
    (folder / "data.json").write_text(json.dumps(about))
    found = evaluate(checkpoints["vanilla"], folder, tmp_path / "x.json")
    (line,) = found["lengths"]
    total = bits(found) * (words + lines)
    assert line["per_word"]["bits"] == pytest.approx(total / (words - 30 + lines))
    assert line["per_byte"]["bits"] == pytest.approx(total / len(text))
    assert line["per_byte"]["perplexity"] == pytest.approx(2 ** (total / len(text)))


def test_where_the_numbers_are_from(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    found = evaluate(checkpoints["linear"], data, tmp_path / "new" / "x.json", "--seed", "3")
    checkpoint = found["checkpoint"]
    assert checkpoint["file"] == "checkpoint_last.pt" and len(checkpoint["sha256"]) == 64
    assert (checkpoint["position_encoding"], checkpoint["attention_type"]) == (
        "lrpe_type2",
        "linear",
    )
    assert checkpoint["updates"] == 40
    assert {"torch", "fairseq", "python"} <= found["versions"].keys()
    assert found["hardware"]["gpus"] == [] and found["hardware"]["cores"] >= 1
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", found["commit"])
    assert re.fullmatch(r"[0-9a-f]{16}", found["sources"])
    assert (found["split"], found["seed"], found["batch_size"]) == ("valid", 3, 8)
    assert found["data"]["dictionary_size"] > 30
    assert found["command"][:2] == ["fairseq-pe", "evaluate"]
    assert not any(word.startswith("/") for word in found["command"])
    assert found["finished_at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--lengths", "12,x"],
            "--lengths must be numbers from 1 on joined by commas, but is '12,x'",
        ),
        (["--lengths", "0"], "--lengths must be numbers from 1 on joined by commas, but is '0'"),
        (["--batch-size", "0"], "--batch-size must be at least 1, but is 0"),
        (["--context-window", "-1"], "--context-window must be at least 0, but is -1"),
        (["--context-window", "16"], "--lengths must be at least 17 with a context window of 16"),
        (["--split", "tset"], "does not hold tset.bin"),
        (["--device", "gpu"], "--device must be cpu, cuda or cuda:N, but is 'gpu'"),
        (
            ["--sample-break-mode", "lines"],
            "--sample-break-mode must be one of none, complete",
        ),
        (
            ["--sample-break-mode", "eos", "--context-window", "3"],
            "--context-window must be 0 with --sample-break-mode eos, but is 3",
        ),
        (["--output", "."], "--output: must be a file, but . is a folder"),
    ],
)
def test_wrong_options_are_named(
    words: list[str], message: str, data: Path, checkpoints: dict[str, Path], capsys
) -> None:
    assert message in refused(capsys, checkpoints["vanilla"], data, *words)


def test_what_is_no_checkpoint(data: Path, tmp_path: Path, capsys) -> None:
    assert "--path must be an existing file, but is" in refused(capsys, tmp_path / "x.pt", data)
    (tmp_path / "x.pt").write_bytes(b"x")
    assert "truncated or not a checkpoint" in refused(capsys, tmp_path / "x.pt", data)


def test_a_translation_is_no_language_model(tmp_path: Path, capsys) -> None:
    """Its data has a dictionary for each language."""
    data = tiny.write_data(TRANSLATION, tmp_path)
    torch.save(tiny.make(TRANSLATION, data, position_encoding="rope"), data / "x.pt")
    message = "must be a pe_transformer_lm or pe_roberta, but is a pe_transformer"
    assert message in refused(capsys, data / "x.pt", data)


def test_a_loss_that_is_not_finite_is_no_perplexity(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    """fairseq-eval-lm leaves such tokens out."""
    state = load_checkpoint(checkpoints["vanilla"])
    weights = state["model"]["decoder.layers.0.fc1.weight"]
    weights.fill_(3e38)  # finite, as what is refused by itself is not
    torch.save(state, tmp_path / "nan.pt")
    assert "losses of a batch are not finite" in refused(capsys, tmp_path / "nan.pt", data)


def test_options_of_a_checkpoint_are_not_evaluated(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    source, path, marker = checkpoints["vanilla"], tmp_path / "x.pt", tmp_path / "ran"
    fairseq = checkpoint_utils.load_model_ensemble_and_task
    naming_another_model(source, path, marker)
    assert "must be a pe_transformer_lm or pe_roberta, but is a fconv_lm" in refused(
        capsys, path, data
    )
    assert not marker.exists()
    with pytest.raises(TypeError):  # what it gets for layers: None
        fairseq([str(path)])
    assert marker.exists()  # as docs/security.md says
    marker.unlink()
    for options in (
        {"adaptive_input": True, "adaptive_input_cutoff": expression(marker)},
        {"adaptive_softmax_cutoff": expression(marker)},
    ):
        with_options(source, path, share_decoder_input_output_embed=False, **options)
        option = list(options)[-1]
        assert f"`{option}` must be numbers joined by commas" in refused(capsys, path, data)
        with pytest.raises(ValueError, match=f"`{option}` must be numbers"):
            fairseq([str(path)])
        assert not marker.exists()


def test_another_task_is_refused(data: Path, checkpoints: dict[str, Path], tmp_path, capsys):
    path = tmp_path / "x.pt"

    def change(config: dict[str, Any]) -> None:
        config["task"]["_name"] = task

    for task, message in {
        "translation_multi_simple_epoch": "must be of the task language_modeling or masked_lm",
        "masked_lm": "must be of the task language_modeling as a pe_transformer_lm",
    }.items():
        rewritten(checkpoints["vanilla"], path, change)
        error = refused(capsys, path, data)
        assert message in error and task in error


@pytest.mark.slow
def test_in_a_process_of_its_own(data: Path, checkpoints: dict[str, Path]) -> None:
    """Which has loaded nothing before."""
    words = ["--path", str(checkpoints["linear"]), "--data", str(data), "--lengths", "16,32"]
    command = [sys.executable, "-m", "fairseq_plugins", "evaluate", *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    about, names, *rows = done.stdout.splitlines()
    assert about.startswith("checkpoint_last.pt: pe_transformer_lm, `lrpe_type2` under linear")
    assert names.split()[:3] == ["length", "tokens", "skipped"]
    assert [row.split()[0] for row in rows[:2]] == ["16", "32"]
    assert done.stderr == ""


def test_another_dictionary_is_refused(
    data: Path, checkpoints: dict[str, Path], tmp_path: Path, capsys
) -> None:
    """Of the same size, in another order."""
    for path in data.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    words = (data / "dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join([words[1], words[0], *words[2:]]) + "\n")
    error = refused(capsys, checkpoints["vanilla"], tmp_path)
    assert "dict.txt must have" in error and "digest" in error
