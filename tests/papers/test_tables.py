"""The paper's numbers and the names of rows."""

import shutil
from pathlib import Path

import pytest

from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers import SCALE_NAMES
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4, TABLE_5, TABLE_8
from fairseq_plugins.papers.tables import (
    check_rows,
    default_rows,
    has_file,
    runnable_rows,
)
from fairseq_plugins.reproduce.experiments import EXPERIMENTS
from fairseq_plugins.reproduce.experiments.lm import EVALUATIONS
from fairseq_plugins.reproduce.run.commands import Run
from fairseq_plugins.reproduce.run.plan import Place, plan_run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

# LRPE, Table 2, as printed: linear valid, linear test, vanilla valid, vanilla test.
PRINTED_TABLE_2 = """
Base   33.94 33.74 30.82 29.78
RoPE   33.40 33.13 30.13 29.31
SPE    43.50 41.91 32.99 32.26
PER    32.86 32.53 32.21 31.95
T5     -     -     30.70 29.74
XL     -     -     32.93 34.36
Type1  33.65 33.58 29.66 28.80
Type2  32.83 32.80 29.60 28.69
Type3  33.04 32.81 29.62 28.81
Type4  35.05 34.80 31.66 31.32
Type5  34.24 33.89 29.92 29.10
Type6  33.13 33.05 29.83 28.87
Type7  34.07 33.87 31.96 31.37
Type8  36.78 36.31 29.85 28.96
"""
PRINTED_TABLE_5 = """
Householder 32.83 32.80 29.60 28.69
Permutation 33.13 33.05 29.83 28.87
Identity    34.09 33.70 30.05 29.24
"""


@pytest.mark.parametrize(
    ("table", "printed"), [(TABLE_2, PRINTED_TABLE_2), (TABLE_5, PRINTED_TABLE_5)]
)
def test_numbers_and_order_are_the_papers(table, printed):
    lines = []
    for row in table.rows:
        cells = [row.paper.get(attention) for attention in ("linear", "vanilla")]
        numbers = [str(number) for cell in cells if cell for number in cell.values()]
        lines.append([row.label, *(numbers if len(numbers) == 4 else ["-", "-", *numbers])])
    assert lines == [line.split() for line in printed.strip().splitlines()]


def test_table_5_shares_its_rows_with_table_2():
    for name in ("lrpe_type2", "lrpe_type6"):
        assert TABLE_5.row(name).paper == TABLE_2.row(name).paper


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
    without, own = plan_run(tmp_path / "configs", run, Place(0)), plan_run(CONFIGS, run, Place(0))
    assert without.trainings[0].overrides[:2] == ("model=base", "model.position_encoding=rope")
    assert without.config == own.config


def test_unknown_row_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"`--rows`.*'lrpe_typ2'.*Did you mean 'lrpe_type2'\?"):
        check_rows(TABLE_2, CONFIGS, ["base", "lrpe_typ2"])


def test_rows_asked_for_twice_run_once():
    assert check_rows(TABLE_2, CONFIGS, ["rope", "base", "rope"]) == ["rope", "base"]


def test_a_row_without_published_numbers_has_a_name():
    assert (TABLE_2.row("none").label, dict(TABLE_2.row("none").paper)) == ("none", {})


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_scale_says_how_its_data_is_made(name):
    experiment = EXPERIMENTS[name]
    assert tuple(experiment.scales) == SCALE_NAMES
    # `scale=toy` is how the language model's recipe says `scale/lm=toy`.
    group = {"scale": "scale/lm"}.get(experiment.scale_group, experiment.scale_group)
    for scale in experiment.scales.values():
        assert (CONFIGS / group / f"{scale.name}.yaml").is_file()
        for command in scale.prepare:
            assert (CONFIGS.parent / command.split()[0]).is_file()


def test_a_language_model_is_evaluated_with_and_without_more_context():
    assert all(evaluation.contexts[0] == 0 for evaluation in EVALUATIONS.values())
    assert EVALUATIONS["paper"].contexts == (0, 400)


def test_means_and_deviations_of_table_4_are_the_papers():
    cell = TABLE_4.row("per").paper["linear"]
    assert [str(number) for number in cell.values()] == ["29.84 ± 0.04", "27.47 ± 0.10"]
    assert "linear" not in TABLE_4.row("lrpe_type8").paper


def test_table_8_prints_the_loss_of_its_perplexity():
    for row in TABLE_8.rows:
        for cell in row.paper.values():
            loss, perplexity = (number.mean for number in cell.values())
            assert abs(2**loss - perplexity) < 0.03, row.label
