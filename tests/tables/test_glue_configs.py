"""The recipes of GLUE: every one composes at every scale, with the settings it says."""

import math
from pathlib import Path

import pytest
import yaml

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.glue import BERT_GLUE
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.glue.tasks import GLUE, TASKS, TOY_GLUE
from fairseq_plugins.papers import PUBLISHED, SCALE_NAMES
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.records.runs import Run
from tests.recipes import compose_recipe, record

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
# Training examples and batch sizes of fairseq's recipes.
SIZES = {
    "CoLA": (8551, 16),
    "SST-2": (67349, 32),
    "MRPC": (3668, 16),
    "STS-B": (5749, 16),
    "QQP": (363846, 32),
    "MNLI": (392702, 32),
    "QNLI": (104743, 32),
    "RTE": (2490, 16),
    "WNLI": (635, 16),
    "Order": (2000, 16),
    "Place": (2000, 16),
}
SHARED = {
    "task._name": "sentence_prediction",
    "task.init_token": 0,
    "task.separator_token": 2,
    "task.max_positions": 512,
    "model._name": "pe_roberta",
    "model.encoder_layers": 12,
    "model.encoder_embed_dim": 768,
    "model.encoder_attention_heads": 12,
    "model.encoder_ffn_embed_dim": 3072,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "criterion._name": "sentence_prediction",
    "optimization.max_epoch": 3,
    "optimization.clip_norm": 0.0,
    "optimizer._name": "adam",
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimizer.adam_eps": 1e-6,
    "optimizer.weight_decay": 0.1,
    "lr_scheduler._name": "polynomial_decay",
    "common.fp16": True,
    "distributed_training.find_unused_parameters": True,
    "checkpoint.no_epoch_checkpoints": True,
}


def composed(recipe, *overrides):
    words = ["checkpoint.finetune_from_model=pretrained.pt", *overrides]
    return record(compose_recipe(CONFIGS, recipe, words))


def select(config, keys):
    parts = [key.split(".") for key in keys]
    return {".".join(part): config[part[0]][part[1]] for part in parts}


@pytest.mark.parametrize("task", GLUE, ids=lambda t: t.name)
def test_paper_scale(task):
    config = composed(task.config, "optimization.lr=[6e-5]", "model=lrpe_type5")
    assert select(config, SHARED) == SHARED
    examples, batch = SIZES[task.name]
    assert total_batch(config) == batch
    updates = 3 * math.ceil(examples / batch)
    assert config["optimization"]["max_update"] == updates
    assert config["lr_scheduler"]["total_num_update"] == updates
    assert config["lr_scheduler"]["warmup_updates"] == math.ceil(0.06 * updates)
    assert config["optimization"]["lr"] == [6e-5]
    assert config["model"]["position_encoding"] == "lrpe_type5"
    assert config["task"]["data"] == f"data/glue/{task.name}"
    check_labels(config, task)


def check_labels(config, task):
    """The best checkpoint of a regression is chosen by its loss, of others by their accuracy."""
    assert config["task"]["num_classes"] == task.labels.num_classes
    assert config["criterion"].get("regression_target", False) == task.labels.is_number
    chosen_by_loss = config["checkpoint"]["best_checkpoint_metric"] == "loss"
    assert chosen_by_loss == task.labels.is_number
    assert config["checkpoint"]["maximize_best_checkpoint_metric"] != chosen_by_loss


@pytest.mark.parametrize("task", GLUE, ids=lambda t: t.name)
def test_the_bert_papers_protocol(task):
    """Its Table 6 and appendix E; the rest is Hugging Face's default."""
    (variant,) = [v for v in BERT_GLUE.variants("paper") if v.kind == task.name]
    assert variant.overrides == ("+glue_protocol=bert",)  # as it is composed by hand
    config = composed(variant.recipe, *variant.overrides)
    assert variant.learning_rate == 2e-5
    updates = 3 * math.ceil(SIZES[task.name][0] / 32)
    wanted = {
        "task.max_positions": 128,
        "model.min_positions": 512,
        "optimization.max_epoch": 3,
        "optimization.max_update": updates,
        "optimization.clip_norm": 1.0,
        "optimizer.adam_betas": "(0.9, 0.999)",
        "optimizer.adam_eps": 1e-8,
        "optimizer.weight_decay": 0.0,
        "lr_scheduler.warmup_updates": 0,
        "lr_scheduler.total_num_update": updates,
        "dataset.disable_validation": True,  # the last checkpoint counts
    }
    assert select(config, wanted) == wanted
    assert total_batch(config) == 32


@pytest.mark.parametrize(("task", "examples"), [("STS-B", 640), ("WNLI", 635)])
def test_three_epochs_of_the_protocol_at_scale_mini(task, examples):
    (small,) = [v for v in BERT_GLUE.variants("mini") if v.kind == task]
    updates = composed(small.recipe, "scale/glue=mini", *small.overrides)["optimization"]
    assert updates["max_update"] == 3 * math.ceil(examples / 32)


@pytest.mark.parametrize("task", TOY_GLUE, ids=lambda t: t.name)
def test_generated_tasks_have_three_epochs_under_the_protocol_too(task):
    config = composed(task.config, "+glue_protocol=bert")
    assert total_batch(config) == 32
    assert config["optimization"]["max_update"] == 3 * math.ceil(SIZES[task.name][0] / 32)
    assert config["task"]["max_positions"] == 64


@pytest.mark.parametrize("scale", ["toy", "mini"])
@pytest.mark.parametrize("name", ["CoLA", "STS-B", "Order"])
def test_tasks_at_small_scales(name, scale):
    task = TASKS[name]
    config = composed(task.config, f"scale/glue={scale}")
    check_labels(config, task)
    assert config["task"]["data"].endswith(f"/{task.name}")
    assert config["common"]["cpu"] and not config["common"]["fp16"]
    if scale == "mini":  # two epochs of 7,700 examples, chosen on others
        assert config["optimization"]["max_update"] == pytest.approx(2 * 7_700 / 32, rel=0.01)
        assert total_batch(config) == 32
        assert config["dataset"]["valid_subset"] == "held_out"
        bert = composed(task.config, "scale/glue=mini", "+glue_protocol=bert")
        assert bert["optimization"]["max_update"] == 3 * 640 // total_batch(bert)
        assert bert["dataset"].get("valid_subset", "valid") == "valid"


OWN_SCALES = [scale for scale in SCALE_NAMES if scale != PUBLISHED]


@pytest.mark.parametrize("scale", OWN_SCALES)
def test_the_model_is_the_pretrained_one(scale):
    pretraining = record(compose_recipe(CONFIGS, "wikitext103_mlm", [f"scale/mlm={scale}"]))
    tuning = composed("glue_rte", f"scale/glue={scale}")
    different = {
        key
        for key, value in pretraining["model"].items()
        if tuning["model"].get(key) != value and "dropout" not in key
    } - {"grow_table", "init_encoding"}  # of init_from alone, which fine-tuning does not have
    assert not different
    longest = pretraining["model"].get("max_positions") or pretraining["task"]["tokens_per_sample"]
    assert tuning["task"]["max_positions"] == longest


def test_fine_tuning_starts_where_the_pretraining_saves():
    """Never None, with which fairseq would train from scratch without a word."""
    row = ["model=rope", "model.attention_type=linear"]
    saved = compose_recipe(CONFIGS, "wikitext103_mlm", row).checkpoint.save_dir
    tuned = compose_recipe(CONFIGS, "glue_rte", [*row, "common.seed=4"]).checkpoint
    assert Path(tuned.finetune_from_model) == Path(saved, "checkpoint_best.pt")


def test_toy_recipes_are_at_scale_toy_and_scales_leave_encodings_alone():
    for task in TOY_GLUE:
        assert composed(task.config)["task"]["data"] == f"data/toy-glue/{task.name}"
    for path in (CONFIGS / "scale" / "glue").glob("*.yaml"):
        keys = set((yaml.safe_load(path.read_text()) or {}).get("model", {}))
        assert not keys & {"_name", "position_encoding", "position_encoding_options"}


@pytest.mark.parametrize(
    "name",
    [
        "table3",
        pytest.param("bert_table3", marks=pytest.mark.slow),
        pytest.param("bert_table4", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(scale, marks=[] if scale == "mini" else [pytest.mark.slow])
        for scale in SCALE_NAMES
    ],
)
def test_models_are_fine_tuned_with_the_positions_they_were_trained_with(name, scale):
    """Tables of rows per position are loaded as they are."""
    place = Devices(experiment_of(name).scales[scale].gpus)
    one = plan_run(CONFIGS, Run(name, scale, "learned", "vanilla", 1), place)
    before = one.pretraining.final
    for training in one.trainings:
        task, model = training.config["task"], training.config["model"]
        # The task of GLUE writes its own over the model's.
        cut = task.get("max_positions") or model["max_positions"]
        positions = max(cut, model.get("min_positions", 0))
        trained = before.config["model"].get("max_positions")
        assert positions == (trained or before.config["task"]["tokens_per_sample"]), (
            training.variant
        )
