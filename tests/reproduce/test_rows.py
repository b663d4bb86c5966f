"""Which rows a table has, and what its scales need."""

import shutil
from pathlib import Path

import pytest

from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers import SCALE_NAMES
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_5
from fairseq_plugins.reproduce.experiments import EXPERIMENTS
from fairseq_plugins.reproduce.experiments.devices import Devices
from fairseq_plugins.reproduce.experiments.lm import EVALUATIONS
from fairseq_plugins.reproduce.experiments.planned import plan_run
from fairseq_plugins.reproduce.experiments.rows import (
    check_rows,
    default_rows,
    has_file,
    runnable_rows,
)
from fairseq_plugins.reproduce.record.runs import Run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_default_rows_are_the_tables_then_those_beyond_the_paper():
    rows = default_rows(TABLE_2, CONFIGS)
    assert rows[:2] == ["base", "rope"]
    assert [row for row in rows if row.startswith("lrpe_type")] == [
        f"lrpe_type{number}" for number in range(1, 9)
    ]
    own = [name for name in TABLE_2.row_names if name in runnable_rows(CONFIGS)]
    assert rows[: len(own)] == own
    assert rows[len(own) :] == sorted(set(runnable_rows(CONFIGS)) - set(own))
    assert set(ENCODINGS) < set(rows)
    assert default_rows(TABLE_5, CONFIGS) == ["lrpe_type2", "lrpe_type6", "lrpe_identity"]


def test_the_papers_own_rows_have_a_word():
    rows = check_rows(TABLE_5, CONFIGS, ["rope", "paper", "lrpe_type6"])
    assert rows == ["rope", "lrpe_type2", "lrpe_type6", "lrpe_identity"]


def test_a_row_without_a_file_is_base_with_that_encoding(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "model" / "rope.yaml").unlink()
    run = Run("table2", "toy", "rope", "linear", 1)
    assert not has_file(tmp_path / "configs", "rope")
    without = plan_run(tmp_path / "configs", run, Devices(0))
    own = plan_run(CONFIGS, run, Devices(0))
    assert without.trainings[0].overrides[:2] == ("model=base", "model.position_encoding=rope")
    assert without.config == own.config


def test_unknown_row_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"`--rows`.*'lrpe_typ2'.*Did you mean 'lrpe_type2'\?"):
        check_rows(TABLE_2, CONFIGS, ["base", "lrpe_typ2"])


def test_rows_asked_for_twice_run_once():
    assert check_rows(TABLE_2, CONFIGS, ["rope", "base", "rope"]) == ["rope", "base"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_scale_says_how_its_data_is_made(name):
    experiment = EXPERIMENTS[name]
    assert tuple(experiment.scales) == SCALE_NAMES
    for scale in experiment.scales.values():
        assert (CONFIGS / experiment.scale_group / f"{scale.name}.yaml").is_file()
        for command in scale.prepare:
            assert (CONFIGS.parent / command.split()[0]).is_file()


def test_a_language_model_is_evaluated_with_and_without_more_context():
    assert all(evaluation.contexts[0] == 0 for evaluation in EVALUATIONS.values())
    assert EVALUATIONS["paper"].contexts == (0, 400)
