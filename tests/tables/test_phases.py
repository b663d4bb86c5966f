"""Where the time of a run went, from its log and its journal."""

import json

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.phase_times import phase_table, training_phases

# Seconds, and the line as Hydra's commands write it; two stretches with an hour between them.
LOG = [
    (0, "fairseq_cli.train", "{'_name': None}"),
    (1, "fairseq.tasks", "dictionary: 3 types"),
    (3, "fairseq.trainer", "begin training epoch 1"),
    (10, "train_inner", '{"loss": "7.0", "num_updates": "10"}'),
    (13, "fairseq_cli.train", 'begin validation on "valid" subset'),
    (18, "valid", '{"valid_loss": "4.0", "valid_num_updates": "20"}'),
    (19, "fairseq.checkpoint_utils", "Preparing to save checkpoint for epoch 1 @ 20 updates"),
    (20, "fairseq.trainer", "Saving checkpoint to x.pt"),
    (23, "fairseq.checkpoint_utils", "Saved checkpoint x.pt (epoch 1 @ 20 updates)"),
    (33, "train_inner", '{"loss": "6.0", "num_updates": "30"}'),
    (3633, "fairseq_cli.train", "{'_name': None}"),
    (3635, "fairseq.trainer", "begin training epoch 1"),
    (3645, "fairseq_cli.train", "done training in 10.0 seconds"),
]
EXPECTED = {"loading": 5.0, "updates": 31.0, "validation": 5.0, "checkpoints": 4.0}


def text() -> str:
    lines = [
        f"[2026-01-01 0{at // 3600}:{at // 60 % 60:02d}:{at % 60:02d},000][{name}][INFO] - {words}"
        for at, name, words in LOG
    ]
    return "\n".join([lines[0], "a warning", *lines[1:]])


def test_time_goes_to_the_phase_that_a_line_begins():
    assert training_phases(text().splitlines()) == EXPECTED
    assert set(training_phases(["nothing"]).values()) == {0.0}


def test_phase_table_are_told_of_the_runs_there_are(root, configs):
    one, other = (
        plan_run(configs, Run("table2", "toy", row, "linear", 1), Devices(0))
        for row in ("rope", "base")
    )
    assert phase_table(root, [one, other]) == "No run of these has been trained here."
    folder = root / one.run.folder
    folder.mkdir(parents=True)
    (folder / "train.log").write_text(text())
    times = {"train_seconds": 50.0, "wall_seconds": 58.0}
    (folder / "run.json").write_text(json.dumps({"config": {}, "data": {}, **times}))
    header, row, total = (line.split() for line in phase_table(root, [one, other]).splitlines())
    assert header == [
        "seconds", "start", "loading", "updates", "validation", "checkpoints", "evaluation",
        "overhead",
    ]  # fmt: skip
    assert row[0] == "rope-linear-s1" and row[1:] == total[1:]
    assert [float(word) for word in row[1:7]] == pytest.approx([5, 5, 31, 5, 4, 8])
    assert row[7:] == ["87", "%"]
