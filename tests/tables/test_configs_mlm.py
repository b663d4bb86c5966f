"""The recipe of the bidirectional model: Table 7 cell by cell, every row, small scales."""

import copy
import functools
from pathlib import Path

import pytest
import yaml
from fairseq.dataclass.initialize import add_defaults
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.records.recipe import total_batch
from tests.recipes import compose_recipe, record

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@functools.cache
def composed(*overrides):
    return compose_recipe(CONFIGS, "wikitext103_mlm", overrides)


def complete(*overrides):
    """With the defaults of every dataclass, as fairseq-hydra-train sees it."""
    config = copy.deepcopy(composed(*overrides))
    add_defaults(config)
    return config


# LRPE, Table 7, column BLM. The vocabulary is the data's: 50,265 with <mask>.
TABLE_7 = {
    "model.encoder_layers": 12,
    "model.encoder_embed_dim": 768,
    "model.encoder_attention_heads": 12,
    "model.encoder_ffn_embed_dim": 3072,
    "model.activation_fn": "gelu",
    "task.tokens_per_sample": 512,
    "optimization.max_update": 50000,
    "lr_scheduler.warmup_updates": 3000,
    "optimization.lr": [5e-4],
    "lr_scheduler._name": "polynomial_decay",
    "optimizer._name": "adam",
    "optimizer.adam_eps": 1e-6,
    "optimizer.adam_betas": (0.9, 0.98),
    "optimizer.weight_decay": 0.01,
    "optimization.clip_norm": 0.0,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
}
# What the paper leaves open: fairseq's recipe for RoBERTa.
CHOSEN = {
    "task._name": "masked_lm",
    "task.data": "data/wikitext-103-mlm",
    "task.sample_break_mode": "complete",
    "task.mask_prob": 0.15,
    "task.leave_unmasked_prob": 0.1,
    "task.random_token_prob": 0.1,
    "lr_scheduler.total_num_update": 50000,
    "lr_scheduler.end_learning_rate": 0.0,
    "lr_scheduler.power": 1.0,
    "model.encoder_normalize_before": False,
    "model.layernorm_embedding": True,
    "model.encoder_learned_pos": True,
    "model.untie_weights_roberta": False,
    "dataset.skip_invalid_size_inputs_valid_test": True,
    "common.fp16": True,
    # The same loss as masked_lm, without the logits.
    "criterion._name": "blockwise_masked_lm",
}


@pytest.mark.parametrize(
    ("row", "run"), [("base", "local"), ("lrpe_type8", "node8"), ("base", "slurm")]
)
def test_paper_scale_is_table_7(row, run):
    config = complete(f"model={row}", "scale/mlm=paper", f"run={run}")
    expected = TABLE_7 | CHOSEN
    found = {key: OmegaConf.select(config, key) for key in expected}
    found["optimizer.adam_betas"] = tuple(
        float(word) for word in str(found["optimizer.adam_betas"]).strip("()[]").split(",")
    )
    found["optimization.lr"] = list(found["optimization.lr"])
    for name in ("task.sample_break_mode", "model.activation_fn"):
        found[name] = str(found[name])
    assert found == expected
    assert total_batch(record(config)) == 512


@pytest.mark.parametrize(("row", "encoding"), [("rope", "rope"), ("t5_only", "none+t5")])
def test_rows_are_those_of_the_language_models(row, encoding):
    config = composed(f"model={row}")
    assert config.model._name == "pe_roberta"
    assert config.model.position_encoding == encoding
    assert "decoder_layers" not in config.model


@pytest.mark.parametrize("scale", ["toy", "mini"])
def test_small_scales_train_on_a_cpu_and_validate_on_the_way(scale):
    config = complete(f"scale/mlm={scale}")
    assert config.common.cpu
    assert not config.common.fp16
    assert config.dataset.num_workers == 0
    assert not config.dataset.disable_validation
    # Figure 2 has the validation loss of every evaluation.
    assert config.optimization.max_update / config.checkpoint.save_interval_updates >= 5
    assert config.lr_scheduler.total_num_update == config.optimization.max_update


def test_stages_of_mini_have_longer_samples_in_updates_of_one_size_and_one_rate():
    stages = [
        composed("scale/mlm=mini", *more)
        for more in (("+mlm_stage/mini=samples_8",), ("+mlm_stage/mini=samples_16",), ())
    ]
    assert [config.task.tokens_per_sample for config in stages] == [8, 16, 32]
    assert {c.task.tokens_per_sample * c.dataset.batch_size for c in stages} == {2048}
    (rate,) = {rate for config in stages for rate in config.optimization.lr}
    # Only the last one lets it fall to zero.
    assert [c.lr_scheduler.get("end_learning_rate", 0) for c in stages] == [rate, rate, 0]
    assert all(c.optimization.max_update > c.lr_scheduler.warmup_updates for c in stages)


def test_scale_mini_has_the_papers_head_dim():
    model = composed("scale/mlm=mini").model
    assert model.encoder_embed_dim / model.encoder_attention_heads == 64


def test_scales_do_not_touch_the_encodings():
    for path in (CONFIGS / "scale" / "mlm").glob("*.yaml"):
        keys = set((yaml.safe_load(path.read_text()) or {}).get("model", {}))
        assert not keys & {"_name", "position_encoding", "position_encoding_options"}


def test_a_misspelt_option_is_refused():
    with pytest.raises(Exception, match="encoder_layerz"):
        composed("model.encoder_layerz=3")
