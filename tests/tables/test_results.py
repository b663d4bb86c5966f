"""The JSON of a run: its keys, and what is read out of logs for it."""

import os
import subprocess
from pathlib import Path

import pytest

from fairseq_plugins.common import provenance
from fairseq_plugins.common.own_encodings import VARIABLE
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.experiments.mlm import MASKED_LANGUAGE_MODEL
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records import logs, results
from fairseq_plugins.records.runs import Run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RUN = Run("table2", "mini", "rope", "linear", 1)
TRAINING_LOG = """\
[2026-01-01][fairseq_cli.train][INFO] - num. shared model params: 1,820,416 (num. trained: 1)
[2026-01-01][fairseq_cli.train][INFO] - {'not': 'json'}
[2026-01-01][train_inner][INFO] - {"epoch": 1, "loss": "9.0", "wps": "100", "num_updates": "10"}
[2026-01-01][train_inner][INFO] - {"epoch": 1, "loss": "8.5", "wps": "300", "num_updates": "20"}
[2026-01-01][train_inner][INFO] - {"epoch": 1, "loss": "8.0", "wps": "200", "num_updates": "30"}
[2026-01-01][valid][INFO] - {"epoch": 1, "valid_loss": "7.9", "valid_num_updates": "33"}
"""


def test_training_log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(TRAINING_LOG)
    assert logs.read_training_log(path) == logs.TrainingLog(1820416, 33, 200.0)
    line = TRAINING_LOG.splitlines()[2]
    assert logs.read_training(line) == logs.Measured(10, 9.0, 100.0)
    assert logs.read_training(TRAINING_LOG.splitlines()[5]) is None
    assert logs.read_training('{"cut": ') is None


def test_evaluation_log(tmp_path):
    path = tmp_path / "eval.log"
    path.write_text("INFO | eval | Loss (base 2): 6.3219, Perplexity: 80.00\n")
    assert logs.read_evaluation_loss(path) == 6.3219
    path.write_text("INFO | eval | Loss (base 2): nan, Perplexity: nan\n")
    with pytest.raises(ValueError, match="loss is nan"):
        logs.read_evaluation_loss(path)
    path.write_text("Traceback\n")
    with pytest.raises(ValueError, match="printed no loss"):
        logs.read_evaluation_loss(path)


def test_every_evaluation_is_two_to_its_loss(tmp_path):
    run = Run("table2", "paper", "rope", "linear", 1)
    (training,) = plan_run(CONFIGS, run, Devices(8)).trainings
    found = {}
    for loss, step in enumerate(LANGUAGE_MODEL.steps(training, Path("best.pt"), run, 8), 3):
        log = tmp_path / step.log
        log.write_text(f"Loss (base 2): {loss}.0, Perplexity: -\n")
        found |= step.read(log)
    assert found == {
        **{"valid_ppl": 8.0, "test_ppl": 16.0, "valid_loss": 3.0, "test_loss": 4.0},
        **{"valid_ppl_context_400": 32.0, "test_ppl_context_400": 64.0},
        **{"valid_loss_context_400": 5.0, "test_loss_context_400": 6.0},
    }


def test_a_run_of_several_trainings_tells_all_updates():
    first, second = logs.TrainingLog(1000, 900, 5000.0), logs.TrainingLog(1001, 100, 4000.0)
    assert results.training_metrics([first, second], 12.34) == {
        "train_seconds": 12.3,
        "updates": 1000,
        "tokens_per_second": 5000.0,
        "parameters": 1000,
    }


def test_validations_are_a_curve_without_repetitions(tmp_path):
    log = tmp_path / "train.log"
    lines = [(100, "5.5"), (200, "5.0"), (200, "4.9"), (300, "inf")]
    log.write_text(
        "\n".join(
            f'[valid] - {{"epoch": 1, "valid_loss": "{loss}", "valid_num_updates": "{updates}"}}'
            for updates, loss in lines
        )
    )
    assert logs.read_validations(log) == [(100, 5.5), (200, 4.9)]


def test_the_loss_of_a_validation_is_the_one_without_label_smoothing(tmp_path):
    log = tmp_path / "validate.log"
    line = '2026-01-01 00:00:00 | INFO | valid | {"valid_loss": "5.161", "valid_nll_loss": "%s"}\n'
    log.write_text(f"loading\n{line % 4.5}{line % 4.026}")
    assert logs.read_validation_loss(log) == 4.026
    for text, reason in (("loading\n", "printed no loss"), (line % "nan", "is nan")):
        log.write_text(text)
        with pytest.raises(ValueError, match=reason):
            logs.read_validation_loss(log)


def test_a_training_that_diverged_is_an_error_by_name(tmp_path):
    """Its loss may be a number of which 2 to the power is none."""
    line = '[valid] - {"epoch": 1, "valid_loss": "5000", "valid_num_updates": "9"}'
    (tmp_path / "train.log").write_text(line)
    planned = plan_run(CONFIGS, RUN, Devices(0))
    (training,) = planned.trainings
    step = LANGUAGE_MODEL.steps(training, tmp_path / "x.pt", RUN, 0)[0]
    (tmp_path / step.log).write_text("Loss (base 2): 5000.0, Perplexity: inf")
    for measure in (
        lambda: step.read(tmp_path / step.log),
        lambda: MASKED_LANGUAGE_MODEL.measure(training, tmp_path),
    ):
        with pytest.raises(ValueError, match="a loss must be from 0 to 1000 bits, but is 5000"):
            measure()


def test_mismatch_says_what_differs(make_result):
    result = make_result("rope", "linear", 1, 80.0)
    same = (result["config"], result["data"])
    assert results.mismatch(result, RUN, *same) == []
    other = Run("table2", "mini", "rope", "linear", 2)
    assert results.mismatch(result, other, *same) == ["seed: 1 -> 2"]
    config = {**result["config"], "optimization": {"max_update": 1200, "update_freq": [1]}}
    assert results.mismatch(result, RUN, config, result["data"]) == [
        "optimization.max_update: 900 -> 1200"
    ]
    data = {**result["data"], "dictionary_size": 9000, "origin": "elsewhere"}
    assert results.mismatch(result, RUN, result["config"], data) == ["the data differs"]
    data["dictionary_size"] = 8000
    assert results.mismatch(result, RUN, result["config"], data) == []
    assert results.mismatch(result, RUN, result["config"], None) == []


def test_commit_is_dirty_by_anything_outside_results(tmp_path):
    assert provenance.commit(tmp_path) == "unknown"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    (tmp_path / "code.py").write_text("1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = provenance.commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new.json").write_text("{}")
    assert provenance.commit(tmp_path) == clean
    (tmp_path / "code.py").write_text("2\n")
    (tmp_path / "notes.txt").write_text("new\n")
    assert provenance.commit(tmp_path) == f"{clean}-dirty"
    assert provenance.uncommitted(tmp_path) == ["code.py", "notes.txt"]


def test_no_commit_has_an_encoding_outside_the_repository(tmp_path, monkeypatch):
    root, own = tmp_path / "root", tmp_path / "mine.py"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for file in (root / "committed.py", own):
        file.parent.mkdir(exist_ok=True)
        file.write_text("1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    monkeypatch.setenv(VARIABLE, str(root / "committed.py"))
    clean = provenance.commit(root)
    assert len(clean) == 40
    monkeypatch.setenv(VARIABLE, str(own))
    assert provenance.commit(root) == f"{clean}-dirty"
    assert provenance.uncommitted(root) == [str(own)]


def test_missing_data_is_named(root):
    folder = root / "data" / "toy"
    assert provenance.missing_data(folder) == []
    (folder / "test.idx").unlink()
    assert provenance.missing_data(folder) == ["test.idx"]
    assert len(provenance.missing_data(root / "data" / "none")) == 7


def test_hardware_names_no_machine():
    found = provenance.hardware(0)
    assert set(found) == {"cpu", "cores", "threads", "gpus", "memory_gib"}
    assert found["gpus"] == []
    assert found["cores"] >= 1
    assert os.uname().nodename not in found["cpu"]
