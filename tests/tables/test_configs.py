"""The composed configurations: Table 7 cell by cell, every row, every number of GPUs."""

import copy
import functools
from pathlib import Path

import pytest
import yaml
from fairseq.dataclass.initialize import add_defaults
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.experiments.devices import Devices, spread
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records import recipe as recipes
from fairseq_plugins.records.recipe import differences, total_batch
from fairseq_plugins.runner.plan import devices_of, plan
from tests.recipes import compose_recipe, record

SCALES = LANGUAGE_MODEL.scales
CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ROWS = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml"))


RECIPES = sorted(path.stem for path in CONFIGS.glob("*.yaml") if "defaults" in path.read_text())


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_every_recipe_has(recipe):
    """The precision by one word, and each process reads the checkpoint that it goes on from."""
    config = compose_recipe(CONFIGS, recipe, ["precision=bf16"])
    assert (config.common.fp16, config.common.bf16) == (False, True)
    assert config.checkpoint.load_checkpoint_on_all_dp_ranks is True


@pytest.mark.parametrize(
    ("precision", "flags"), [("fp16", (True, False)), ("fp32", (False, False))]
)
def test_other_precisions(precision, flags):
    words = ["scale=small", f"precision={precision}"]
    common = compose_recipe(CONFIGS, "wikitext103_lm", words).common
    assert (common.fp16, common.bf16) == flags


def test_rows_and_scales_of_ones_own_are_found_elsewhere(tmp_path):
    """As docs/using.md says."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "x.yaml").write_text("position_encoding: rope\n")
    (tmp_path / "scale" / "lm").mkdir(parents=True)
    text = "# @package _global_\nmodel:\n  decoder_layers: 3\n"
    (tmp_path / "scale" / "lm" / "y.yaml").write_text(text)
    words = [f"hydra.searchpath=[file://{tmp_path}]", "model=x", "scale=y"]
    config = compose_recipe(CONFIGS, "wikitext103_lm", words)
    assert (config.model.position_encoding, config.model.decoder_layers) == ("rope", 3)
    assert config.checkpoint.save_dir.rstrip("/").endswith("wikitext103_lm/y/x-vanilla-s1")


@functools.cache
def composed(*overrides):
    return compose_recipe(CONFIGS, "wikitext103_lm", overrides)


def complete(*overrides):
    """With the defaults of every dataclass, as fairseq-hydra-train sees it."""
    config = copy.deepcopy(composed(*overrides))
    add_defaults(config)
    return config


# LRPE, Table 7, column AML. The vocabulary is the data's: 267,744 words.
TABLE_7 = {
    "task._name": "language_modeling",
    "task.data": "data/wikitext-103",
    "model.decoder_layers": 6,
    "model.decoder_embed_dim": 512,
    "model.decoder_input_dim": 512,
    "model.decoder_output_dim": 512,
    "model.decoder_attention_heads": 8,
    "model.decoder_ffn_embed_dim": 2048,
    "model.activation_fn": "relu",
    "model.dropout": 0.1,
    "model.attention_dropout": 0.0,
    "task.tokens_per_sample": 512,
    "optimization.max_update": 50000,
    "optimization.lr": [5e-4],
    "optimization.clip_norm": 0.0,
    "optimizer._name": "adam",
    "optimizer.adam_betas": (0.9, 0.98),
    "optimizer.adam_eps": 1e-8,
    "optimizer.weight_decay": 0.01,
    "lr_scheduler._name": "inverse_sqrt",
    "lr_scheduler.warmup_updates": 4000,
    # Unstated in the paper; the authors' released models, and fairseq's README recipe.
    "lr_scheduler.warmup_init_lr": 1e-7,
    "task.sample_break_mode": "none",
    "model.share_decoder_input_output_embed": True,
    "model.decoder_normalize_before": True,
    "common.fp16": True,
    # The same loss as cross_entropy, without the logits.
    "criterion._name": "blockwise_cross_entropy",
    "dataset.batch_size": 16,
}


@pytest.mark.parametrize(
    ("row", "run"), [("base", "local"), ("lrpe_type8", "node8"), ("base", "slurm")]
)
def test_paper_scale_is_table_7(row, run):
    config = complete(f"model={row}", "scale=paper", f"run={run}")
    expected = {**TABLE_7}
    if row == "lrpe_type8":
        expected["optimization.clip_norm"] = 1.0
    found = {key: OmegaConf.select(config, key) for key in expected}
    found["optimizer.adam_betas"] = tuple(
        float(word) for word in str(found["optimizer.adam_betas"]).strip("()[]").split(",")
    )
    found["optimization.lr"] = list(found["optimization.lr"])
    found["task.sample_break_mode"] = str(found["task.sample_break_mode"])
    found["model.activation_fn"] = str(found["model.activation_fn"])
    assert found == expected
    assert total_batch(record(config)) == 128


@pytest.mark.parametrize("row", ROWS)
def test_every_row_sets_its_encoding_alone(row):
    text = (CONFIGS / "model" / f"{row}.yaml").read_text()
    alone = row.removesuffix("_only")  # without the absolute embedding that others have
    assert yaml.safe_load(text) == {"position_encoding": row if row == alone else f"none+{alone}"}
    assert alone in ENCODINGS
    assert text.startswith(("# LRPE, Table", "# Beyond LRPE's Table"))


@pytest.mark.parametrize("row", ["rope", "t5_only", "lrpe_type8"])
def test_a_row_is_a_model_with_an_encoding(row):
    config = complete(f"model={row}")
    assert config.model._name == "pe_transformer_lm"
    assert config.model.position_encoding == row.replace("t5_only", "none+t5")
    assert config.optimization.clip_norm == (1.0 if row == "lrpe_type8" else 0.0)


def test_a_misspelt_option_is_refused():
    with pytest.raises(Exception, match="decoder_layerz"):
        composed("model.decoder_layerz=3")


def test_small_scales_train_on_a_cpu():
    for scale in ("toy", "mini"):
        config = composed(f"scale={scale}")
        assert config.common.cpu
        assert not config.common.fp16
        assert config.dataset.num_workers == 0


def test_a_record_is_that_of_all_overrides_whatever_they_share():
    words = ("model=rope", "scale=toy", "run=local", "checkpoint.save_dir=a", "common.seed=3")
    for more in (("model.dropout=0.25",), ("common.seed=4",), ("optimization.lr=[1]",)):
        ours = recipes.record(CONFIGS, "wikitext103_lm", (*words, *more))
        assert ours == record(composed(*words, *more))
    # Folders whose names refer to Hydra's settings, and what refers to them, stay as written.
    ours = recipes.record(CONFIGS, "squad_v1", ("model=rope", "scale/squad=toy"))
    assert "${hydra:" in ours["checkpoint"]["save_dir"]


@pytest.mark.parametrize("scale", sorted(SCALES))
def test_the_plain_word_chooses_a_scale_of_language_models(scale):
    assert composed(f"scale={scale}") == composed(f"scale/lm={scale}")
    assert (CONFIGS / "scale" / "lm" / f"{scale}.yaml").is_file()


def test_an_unknown_scale_is_refused():
    with pytest.raises(MissingConfigException, match="Could not find 'scale/lm/minny'"):
        composed("scale=minny")


def test_scales_change_only_what_they_say():
    """A row's own settings survive every scale: scale files do not touch the encodings."""
    for path in (CONFIGS / "scale").rglob("*.yaml"):
        content = yaml.safe_load(path.read_text()) or {}
        keys = set(content.get("model", {}))
        assert not keys & {"_name", "position_encoding", "position_encoding_options"}


@pytest.mark.parametrize(
    ("gpus", "srun"), [(1, False), (2, False), (4, False), (8, False), (8, True), (16, True)]
)
def test_total_batch_is_the_papers_on_any_number_of_gpus(gpus, srun):
    planned, _ = plan(
        CONFIGS, TABLE_2, SCALES["paper"], Devices(gpus, srun),
        rows=["rope"], attentions=["linear", "vanilla"], seeds=[1, 2],
    )  # fmt: skip
    last = planned[-1]
    assert last.run.name == "rope-vanilla-s2"
    (training,) = last.trainings
    overrides = training.command[training.command.index("wikitext103_lm") + 1 :]
    trained = record(composed(*overrides))
    assert trained["distributed_training"]["distributed_world_size"] == gpus
    assert total_batch(trained) == 128
    assert trained == last.config


@pytest.mark.parametrize(
    ("total", "per_device", "devices", "expected"),
    [
        (128, 4, 1, (4, 32)),
        (128, 4, 8, (4, 4)),
        (128, 4, 64, (2, 1)),
        (32, 32, 2, (16, 1)),
        (96, 32, 1, (32, 3)),
        (96, 32, 2, (24, 2)),
    ],
)
def test_spread(total, per_device, devices, expected):
    found = spread(_batches(total // per_device, batch_size=per_device), devices)
    batch_size, update_freq = expected
    assert found == {
        "dataset.batch_size": batch_size,
        "optimization.update_freq": [update_freq],
        "distributed_training.distributed_world_size": devices,
    }


def test_batches_that_are_counted_in_tokens_are_spread_whole():
    recorded = _batches(8, max_tokens=4400)
    found = [tuple(spread(recorded, devices).values()) for devices in (1, 2, 8)]
    assert found == [([8], 1), ([4], 2), ([1], 8)]
    with pytest.raises(ValueError, match=r"`--gpus` must divide .* 8 batches per update"):
        spread(recorded, 3)


def _batches(update_freq, **dataset):
    return {
        "dataset": dataset,
        "optimization": {"update_freq": [update_freq]},
        "distributed_training": {"distributed_world_size": 1},
    }


def test_gpus_that_do_not_share_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"`--gpus` must divide .* 128 .* is 3 instead"):
        spread(_batches(32, batch_size=4), 3)


@pytest.mark.parametrize(
    ("scale", "devices", "message"),
    [
        ("paper", Devices(0), "at least 1 at scale paper"),
        ("mini", Devices(-1), "must not be negative"),
        ("paper", Devices(12, srun=True), "multiple"),
    ],
)
def test_impossible_devices_are_refused(scale, devices, message):
    with pytest.raises(ValueError, match=message):
        devices_of(SCALES[scale], devices.gpus, 1, is_slurm=devices.srun)


def test_incompatible_cells_are_found_by_asking_the_encodings():
    planned, skipped = plan(
        CONFIGS, TABLE_2, SCALES["toy"], Devices(0),
        rows=["rope", "t5"], attentions=["linear", "vanilla"], seeds=[1, 2],
    )  # fmt: skip
    names = [one.run.name for one in planned]
    assert names == [
        *("rope-linear-s1", "rope-linear-s2", "rope-vanilla-s1", "rope-vanilla-s2"),
        *("t5-vanilla-s1", "t5-vanilla-s2"),
    ]
    assert [*skipped] == [("t5", "linear")]
    assert "attn_bias" in skipped["t5", "linear"]


def test_a_row_that_no_asked_attention_can_have_is_refused():
    with pytest.raises(ValueError, match=r"row 't5'.*attn_bias"):
        plan(
            CONFIGS, TABLE_2, SCALES["toy"], Devices(0),
            rows=["t5"], attentions=["linear"], seeds=[1],
        )  # fmt: skip


def test_every_row_of_the_paper_that_the_paper_ran_is_compatible():
    for row in TABLE_2.rows:
        for attention in row.paper if row.name in ROWS else ():
            config = record(composed(f"model={row.name}"))
            config["model"]["attention_type"] = attention
            assert LANGUAGE_MODEL.incompatibility(config["model"]) is None, (row.name, attention)


def test_differences_name_the_key_and_ignore_where_a_run_goes():
    paper = record(composed("scale=paper", "run=node8"))
    elsewhere = record(
        composed(
            "scale=paper",
            "run=local",
            "task.data=data/elsewhere",
            "checkpoint.save_dir=checkpoints/elsewhere",
            "dataset.num_workers=7",
        )
    )
    assert differences(paper, elsewhere) == []
    longer = record(composed("scale=paper", "optimization.max_update=60000", "model=rope"))
    assert differences(paper, longer) == [
        "model.position_encoding: base -> rope",
        "optimization.max_update: 50000 -> 60000",
    ]
    smaller = record(composed("scale=paper", "dataset.batch_size=2"))
    assert differences(paper, smaller) == ["total_batch: 128 -> 16"]
    assert differences({"task": {}}, paper) == ["the recorded configuration is not complete"]


def test_a_setting_counts_where_the_recipe_has_none():
    plain = record(composed())
    for key in ("dataset.max_tokens", "dataset.max_valid_steps", "dataset.fixed_validation_seed"):
        assert f"{key}: None -> 3" in differences(plain, record(composed(f"{key}=3")))
    elsewhere = ("common.tensorboard_logdir=a", "common.wandb_project=b", "common.log_file=c")
    assert differences(plain, record(composed(*elsewhere))) == []
    older = {**plain, "dataset": {**plain["dataset"]}}  # by a fairseq that does not know the key
    del older["dataset"]["max_valid_steps"]
    assert differences(older, record(composed("dataset.max_valid_steps=3"))) == []


def test_record_has_no_absolute_paths():
    config = record(composed("task.data=/somewhere/data"))
    assert "data" not in config["task"]
    assert not [v for s in config.values() for v in s.values() if str(v).startswith("/")]
