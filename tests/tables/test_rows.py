"""Which rows a table has, and what its scales need."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra import compose

from fairseq_plugins.encodings import ENCODINGS, expand_name, get_entry
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.rows import (
    check_rows,
    default_rows,
    encoding_of,
    has_file,
    runnable_rows,
)
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_5
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.records import recipe
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.plan import plan
from tests.recipes import compose_recipe, record

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_default_rows_are_the_tables_then_those_beyond_the_paper():
    rows = default_rows(TABLE_2, CONFIGS)
    assert rows[:2] == ["base", "rope"]
    assert [row for row in rows if row.startswith("lrpe_type")] == [
        *(f"lrpe_type{number}" for number in range(1, 9)),
        "lrpe_type2_only",
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


def planned_and_composed(configs: Path, row: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is recorded of a training, and what Hydra composes of its command."""
    planned = plan_run(configs, Run("table2", "paper", row, "linear", 2), Devices(8))
    (training,) = planned.trainings
    return planned.config, record(compose_recipe(configs, "wikitext103_lm", training.overrides))


def on_inputs(row: str, absolute: str | None, base: str | None = None) -> list[str]:
    """The encodings that act on the inputs of a model's layers in a row."""
    name = encoding_of(CONFIGS, row)
    assert name is not None
    named = name_stack(name, "", absolute=absolute, base=base)
    return [part for part in expand_name(named.name) if "embed" in get_entry(part).hooks]


@pytest.mark.parametrize("row", [r for r in runnable_rows(CONFIGS) if r.endswith("_only")])
def test_a_row_of_an_encoding_alone_is_the_other_without_the_absolute_embedding(row):
    beside = row.removesuffix("_only")
    assert on_inputs(beside, "base") == ["base"] and on_inputs(row, "base") == []
    masked = {"absolute": "learned", "base": "learned"}
    assert on_inputs(beside, **masked) == ["learned"] and on_inputs(row, **masked) == []
    assert attentions(beside) == attentions(row)


def attentions(row: str) -> list[str]:
    """Those that a row can have."""
    planned, _ = plan(
        CONFIGS, TABLE_2, EXPERIMENTS["lm"].scales["toy"], Devices(0),
        rows=[row], attentions=ATTENTIONS, seeds=[1],
    )  # fmt: skip
    return [one.run.attention for one in planned]


@pytest.mark.parametrize("row", ["base", "rope", "shaw_only", "lrpe_type8", "sinusoidal", "aspe"])
def test_a_row_is_what_hydra_composes(row):
    planned, composed = planned_and_composed(CONFIGS, row)
    assert planned == composed
    assert planned["optimization"]["clip_norm"] == (1.0 if row == "lrpe_type8" else 0.0)


@pytest.mark.parametrize(
    ("name", "text", "section", "option", "value"),
    [
        ("model/rope", "position_encoding: rope\ndropout: 0.4\n", "model", "dropout", 0.4),
        (
            "model/rope",
            "# @package _global_\nmodel: {position_encoding: rope}\ncommon: {log_interval: 7}\n",
            "common", "log_interval", 7,
        ),
        (
            "wikitext103_lm_row/rope",
            "# @package _global_\noptimization: {clip_norm: 3.0}\n",
            "optimization", "clip_norm", 3.0,
        ),
        (
            "model/base",
            "position_encoding: base\ndropout: 0.4\n",
            "model", "position_encoding", "rope",
        ),
    ],
)  # fmt: skip
def test_files_that_say_more_are_composed(name, text, section, option, value, tmp_path):
    configs = tmp_path / "configs"
    shutil.copytree(CONFIGS, configs)
    (configs / f"{name}.yaml").write_text(text)
    planned, composed = planned_and_composed(configs, "rope")
    assert planned == composed
    assert planned[section][option] == value
    assert planned["model"]["dropout"] == (0.4 if "dropout" in option else 0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("position_encoding: [rope", "model/own.yaml is no YAML: while parsing .* line 1"),
        ("dropout: 0.1", "model/own.yaml must set `position_encoding`, but sets dropout"),
    ],
)
def test_a_file_that_does_not_compose_is_named(text, message, tmp_path):
    configs = tmp_path / "configs"
    shutil.copytree(CONFIGS, configs)
    (configs / "model" / "own.yaml").write_text(text)
    with pytest.raises(recipe.COMPOSITION_ERRORS, match=message):
        plan_run(configs, Run("table2", "toy", "own", "vanilla", 1), Devices(0))


def test_a_misspelt_option_beside_the_encoding_is_named(tmp_path):
    configs = tmp_path / "configs"
    shutil.copytree(CONFIGS, configs)
    (configs / "model" / "own.yaml").write_text("position_encoding: rope\ndecoder_layrs: 3")
    message = "row 'own': `model.decoder_layrs`: .* Did you mean 'decoder_layers'"
    with pytest.raises(ValueError, match=message):
        plan(configs, TABLE_2, EXPERIMENTS["lm"].scales["toy"], Devices(0), rows=["own"])


def test_planning_a_table_composes_few_configurations(tmp_path, monkeypatch):
    """Each takes a fifth of a second."""
    configs = tmp_path / "configs"
    shutil.copytree(CONFIGS, configs)
    composed = []

    def count(recipe, **options):
        composed.append(recipe)
        return compose(recipe, **options)

    monkeypatch.setattr(recipe, "compose", count)
    runs, _ = plan(
        configs, TABLE_2, EXPERIMENTS["lm"].scales["paper"], Devices(8),
        rows=None, attentions=["linear", "vanilla"], seeds=[1, 2],
    )  # fmt: skip
    assert len({one.run.row for one in runs}) > 40
    assert len(composed) <= 3  # Base, Base where it is trained, and the row with a file of its own


def test_unknown_row_is_refused_with_the_nearest_name():
    # The nearest name stands before all names, where it is seen.
    message = r"among the known names, but has 'lrpe_typ2'\. Did you mean 'lrpe_type2'\? The names"
    with pytest.raises(ValueError, match=message):
        check_rows(TABLE_2, CONFIGS, ["base", "lrpe_typ2"])


def test_the_refusal_of_an_unknown_row_says_how_to_list_all():
    with pytest.raises(ValueError, match="'lrpe_typ2'") as refused:
        check_rows(TABLE_2, CONFIGS, ["lrpe_typ2"])
    said = str(refused.value)
    assert "nearest to it are lrpe_type2, lrpe_type" in said and "alibi" not in said
    assert "`fairseq-pe encodings` lists all encodings" in said and "rope_only" in said
    assert "FAIRSEQ_PLUGINS_ENCODINGS must name the file" in said  # forgotten in a new shell


def test_rows_asked_for_twice_run_once():
    assert check_rows(TABLE_2, CONFIGS, ["rope", "base", "rope"]) == ["rope", "base"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_scale_says_how_its_data_is_made(name):
    experiment = EXPERIMENTS[name]
    for scale in experiment.scales.values():
        assert (CONFIGS / experiment.scale_group / f"{scale.name}.yaml").is_file()
        for command in scale.prepare:
            assert (CONFIGS.parent / command.split()[0]).is_file()


def test_a_language_model_is_evaluated_with_and_without_more_context():
    planned = plan_run(CONFIGS, Run("table2", "paper", "rope", "linear", 1), Devices(8))
    logs = [step.log for step in planned.steps(planned.final)]
    assert logs[:2] == ["eval-valid.log", "eval-test.log"]
    assert logs[2:] == ["eval-valid_context_400.log", "eval-test_context_400.log"]
