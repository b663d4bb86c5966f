"""The recipes of SQuAD: the paper's settings at scale paper, the sizes of pre-training at each."""

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig

from fairseq_plugins.papers import SCALE_NAMES
from fairseq_plugins.records.recipe import total_batch
from tests.recipes import compose_recipe

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SIZES = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_attention_heads",
    "encoder_ffn_embed_dim",
    "encoder_normalize_before",
)
ROPE = ("model=rope", "model.attention_type=linear")


def compose(recipe: str, *words: str) -> DictConfig:
    return compose_recipe(CONFIGS, recipe, ["checkpoint.finetune_from_model=x.pt", *words])


@functools.cache
def tuned_from_rope(recipe: str, scale: str) -> DictConfig:
    return compose(recipe, f"scale/squad={scale}", *ROPE)


@pytest.mark.parametrize(("recipe", "version"), [("squad_v1", "1.1"), ("squad_v2", "2.0")])
def test_paper(recipe: str, version: str) -> None:
    """Table 6 of the BERT paper, row SQuAD, and the defaults of run_squad that it refers to."""
    config: Any = compose(recipe)
    assert (config.task._name, config.criterion._name) == ("squad", "squad")
    assert config.task.data == f"data/squad-v{version}"
    assert (config.optimization.max_epoch, config.optimization.lr) == (3, [3e-5])
    assert total_batch(config) == 32
    assert (config.optimizer.adam_betas, config.optimizer.adam_eps) == ("(0.9, 0.999)", 1e-8)
    assert (config.optimizer.weight_decay, config.optimization.clip_norm) == (0.0, 1.0)
    assert config.lr_scheduler.warmup_updates == 0
    assert config.lr_scheduler.total_num_update == config.optimization.max_update
    assert config.checkpoint.save_interval_updates == 1000
    assert config.model.position_encoding == "base" and config.model._name == "pe_roberta"


def test_fine_tuning_starts_where_the_pretraining_saves() -> None:
    """Never None, with which fairseq would train from scratch without a word."""
    saved = compose_recipe(CONFIGS, "wikitext103_mlm", ROPE).checkpoint.save_dir
    for recipe in ("squad_v1", "squad_v2"):
        tuned = compose_recipe(CONFIGS, recipe, [*ROPE, "common.seed=4"]).checkpoint
        assert Path(tuned.finetune_from_model) == Path(saved, "checkpoint_best.pt")


@pytest.mark.parametrize("scale", SCALE_NAMES)
def test_sizes_are_those_of_pretraining(scale: str) -> None:
    """Else a pre-trained checkpoint could not be loaded."""
    tuned: Any = tuned_from_rope("squad_v1", scale)
    trained: Any = compose_recipe(CONFIGS, "wikitext103_mlm", [f"scale/mlm={scale}", *ROPE])
    for name in SIZES:
        assert tuned.model[name] == trained.model[name], name
    longest = trained.model.get("max_positions") or trained.task.tokens_per_sample
    assert tuned.model.max_positions == longest
    assert tuned.model.position_encoding == "rope" and tuned.model.attention_type == "linear"
    assert tuned_from_rope("squad_v2", scale).model == tuned.model


def test_each_version_has_its_data_at_every_scale() -> None:
    found = {
        tuned_from_rope(recipe, scale).task.data
        for recipe in ("squad_v1", "squad_v2")
        for scale in SCALE_NAMES
    }
    assert len(found) == 2 * len(SCALE_NAMES)


def test_the_two_recipes_differ_in_data_and_updates_alone() -> None:
    first, second = (
        yaml.safe_load((CONFIGS / f"squad_v{version}.yaml").read_text()) for version in (1, 2)
    )
    for config in (first, second):
        for section in ("task", "optimization"):
            assert len(config.pop(section)) == 1
        config["defaults"] = [entry for entry in config["defaults"] if "_data" not in str(entry)]
    assert first == second
