"""The composed configurations of translation: Table 7's MT column cell by cell, rows, GPUs."""

import copy
import functools
from pathlib import Path

import pytest
import yaml
from fairseq.dataclass.initialize import add_defaults
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.modules.transformer_options import check_common_options
from fairseq_plugins.translation.decoding import Decoding
from fairseq_plugins.translation.prepare import WMT14_MERGES
from tests.recipes import compose_recipe

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@functools.cache
def composed(*overrides):
    return compose_recipe(CONFIGS, "wmt14_en_de", overrides)


def complete(*overrides):
    """With the defaults of every dataclass, as fairseq-hydra-train sees it."""
    config = copy.deepcopy(composed(*overrides))
    add_defaults(config)
    return config


def test_the_common_attention_which_the_recipe_overrides_is_refused():
    """It would be ignored in silence."""
    check_common_options(complete().model)
    with pytest.raises(ValueError, match=r"`attention_type` must be left out .* is 'linear'"):
        check_common_options(complete("+model.attention_type=linear").model)


# LRPE, Table 7, column MT. The vocabularies, 40,480 and 42,720 symbols, are the data's.
TABLE_7 = {
    "task._name": "translation",
    "task.data": "data/wmt14-en-de",
    "task.source_lang": "en",
    "task.target_lang": "de",
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.encoder_embed_dim": 512,
    "model.decoder_embed_dim": 512,
    "model.decoder_output_dim": 512,
    "model.encoder_attention_heads": 8,
    "model.decoder_attention_heads": 8,
    "model.encoder_ffn_embed_dim": 2048,
    "model.decoder_ffn_embed_dim": 2048,
    "model.activation_fn": "relu",
    "model.dropout": 0.1,
    "model.attention_dropout": 0.0,
    "dataset.max_tokens": 4400,
    "dataset.batch_size": None,
    "optimization.max_update": 100000,
    "optimization.lr": [7e-4],
    "optimization.clip_norm": 0.0,
    "optimizer._name": "adam",
    "optimizer.adam_betas": (0.9, 0.98),
    "optimizer.adam_eps": 1e-8,
    "optimizer.weight_decay": 0.0,
    "lr_scheduler._name": "inverse_sqrt",
    "lr_scheduler.warmup_updates": 4000,
    # Section 4.2: linear attention and its encoding are in the encoder only.
    "model.decoder_attention_type": "vanilla",
    "model.cross_attention_type": "vanilla",
    # Unstated in the paper.
    "criterion._name": "blockwise_label_smoothed_cross_entropy",
    "criterion.label_smoothing": 0.1,
    "lr_scheduler.warmup_init_lr": 1e-7,
    "model.share_decoder_input_output_embed": True,
    "model.share_all_embeddings": False,  # dictionaries are not joined
    "model.encoder_normalize_before": False,
    "model.decoder_normalize_before": False,
    "common.fp16": True,
}


@pytest.mark.parametrize("row", ["base", "lrpe_type8"])
@pytest.mark.parametrize(("run", "gpus"), [("local", 1), ("node8", 8), ("slurm", 8)])
def test_paper_scale_is_table_7(row, run, gpus):
    config = complete(f"model={row}", "scale/mt=paper", f"run={run}")
    found = {key: OmegaConf.select(config, key) for key in TABLE_7}
    found["optimizer.adam_betas"] = tuple(
        float(word) for word in str(found["optimizer.adam_betas"]).strip("()[]").split(",")
    )
    found["optimization.lr"] = list(found["optimization.lr"])
    for key in ("activation_fn", "decoder_attention_type", "cross_attention_type"):
        found[f"model.{key}"] = str(found[f"model.{key}"])
    assert found == TABLE_7
    assert config.distributed_training.distributed_world_size == gpus
    assert list(config.optimization.update_freq) == [8 // gpus]  # eight batches per update


def test_data_and_decoding_are_those_of_the_recipe():
    assert WMT14_MERGES == 40_000
    decoding = {"beam": 4, "lenpen": 0.6, "max_len_a": 1.0, "max_len_b": 50}
    assert Decoding().generation() == decoding


@pytest.mark.parametrize("row", ["rope", "t5", "lrpe_type2"])
def test_rows_are_those_of_the_language_models(row):
    config = complete(f"model={row}", "scale/mt=mini", "model.encoder_attention_type=linear")
    assert config.model._name == "pe_transformer"
    assert config.model.position_encoding == row
    assert str(config.model.encoder_attention_type) == "linear"
    assert str(config.model.decoder_attention_type) == "vanilla"


def test_a_misspelt_option_is_refused():
    with pytest.raises(Exception, match="encoder_layerz"):
        composed("model.encoder_layerz=3")


@pytest.mark.parametrize("scale", ["toy", "mini"])
def test_small_scales_train_on_a_cpu_and_leave_the_encodings(scale):
    config = composed(f"scale/mt={scale}")
    assert config.common.cpu
    assert not config.common.fp16
    assert list(config.optimization.update_freq) == [1]
    for side in ("encoder", "decoder"):
        assert config.model[f"{side}_embed_dim"] % config.model[f"{side}_attention_heads"] == 0
    content = yaml.safe_load((CONFIGS / "scale" / "mt" / f"{scale}.yaml").read_text())
    assert not [key for key in content["model"] if "position" in key or "attention_type" in key]
