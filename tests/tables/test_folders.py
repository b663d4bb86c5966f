"""Where recipes put what they train: a folder for each thing, whatever the words that chose it."""

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.experiments.glue_columns import LRPE_RATES
from fairseq_plugins.records.recipe import NOT_THE_EXPERIMENT
from tests.recipes import compose_recipe

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RECIPES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
SCALE_GROUPS = {"wikitext103_lm": "lm", "wikitext103_mlm": "mlm", "wmt14_en_de": "mt"}


def scale_group(recipe: str) -> str:
    return "scale/" + SCALE_GROUPS.get(recipe, recipe.partition("_")[0])


def folder(recipe: str, *words: str) -> Path:
    return Path(compose_recipe(CONFIGS, recipe, words).checkpoint.save_dir)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_scale_row_attention_and_seed_are_in_the_name(recipe):
    attention = "encoder_attention_type" if recipe == "wmt14_en_de" else "attention_type"
    words = ["model=rope", f"{scale_group(recipe)}=toy", "common.seed=3"]
    found = folder(recipe, *words, f"model.{attention}=linear")
    assert found.parts[:4] == ("checkpoints", recipe, "toy", "rope-linear-s3")


def test_every_row_has_a_folder_of_its_own():
    """Also one that sets more than an encoding, beside the row of that encoding."""
    recipe = "wikitext103_lm"
    assert folder(recipe) == Path("checkpoints", recipe, "paper", "base-vanilla-s1")
    assert folder(recipe, "model=shaw_only").name == "shaw_only-vanilla-s1"
    by_option = folder(recipe, "model.position_encoding=none+shaw")
    assert by_option.parts[-2:] == ("base-vanilla-s1", "model.position_encoding=none+shaw")
    rows = [yaml.safe_load(path.read_text()) for path in (CONFIGS / "model").glob("*.yaml")]
    assert all(set(row) == {"position_encoding"} for row in rows)
    assert len({row["position_encoding"] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("recipe", "choices"),
    [
        ("wikitext103_lm", ["scale=mini", "scale=toy"]),
        ("wikitext103_lm", ["scale=toy", "scale=toy model.feature_map=relu"]),
        ("wikitext103_lm", ['model.position_encoding_options="base=500"', "model=rope"]),
        ("wikitext103_lm", ["optimization.lr=[0.001]", "optimization.lr=[0.002]"]),
        ("wikitext103_lm", ["run=node8", "dataset.batch_size=2", "dataset.batch_size=4"]),
        ("wmt14_en_de", ["run=node8", *(f"optimization.update_freq=[{n}]" for n in (2, 3))]),
        ("glue_cola", ["run=local", "task.data=a", "task.data=b/c", "task.data=/b/c"]),
        ("wikitext103_mlm", ["+bert_start=toy", "+bert_continued=toy", "scale/mlm=toy"]),
        ("wikitext103_mlm", ["model.init_from=a/b.pt", "model.init_from=a/c.pt"]),
        ("glue_cola", [f"optimization.lr=[{rate}]" for rate in LRPE_RATES["paper"]]),
        ("glue_cola", ["+glue_protocol=bert", "scale/glue=paper"]),
        ("glue_rte", [f"checkpoint.finetune_from_model={name}.pt" for name in "ab"]),
        (
            "wmt14_en_de",
            [
                "model=rope",
                "model.encoder_attention_type=linear",
                "model.decoder_attention_type=linear",
                "model.cross_attention_type=linear",
                "model=rope model.decoder_position_encoding=base",
                "model.decoder_position_encoding=rope",
                "model.cross_position_encoding=rope",
                "+model.encoder_position_encoding=rope",
            ],
        ),
    ],
)
def test_what_is_trained_otherwise_is_elsewhere(recipe, choices):
    words = [choice.split(" ") for choice in choices]
    folders = [folder(recipe, *given) for given in words]
    assert len(set(folders)) == len(folders)


def test_where_a_run_goes_is_not_in_the_name():
    same = [
        "run=node8",
        "common.log_interval=7",
        "dataset.num_workers=0",
        "checkpoint.save_interval_updates=3",
    ]
    plain = folder("wikitext103_lm", "model=rope")
    assert {folder("wikitext103_lm", "model=rope", word) for word in same} == {plain}


def test_the_name_leaves_out_what_results_are_not_compared_by():
    """Besides what is in the name already; a model that training starts from is part of it.

    `start.checkpoint` is of a recorded configuration, not of Hydra's.
    """
    shared = yaml.safe_load((CONFIGS / "recipe" / "folders.yaml").read_text())
    left_out = set(shared["hydra"]["job"]["config"]["override_dirname"]["exclude_keys"])
    assert left_out >= NOT_THE_EXPERIMENT - {
        "checkpoint.finetune_from_model",
        "criterion.teacher",
        "start.checkpoint",
        # In the name where somebody sets them.
        "task.data",
        "dataset.batch_size",
        "optimization.update_freq",
    }
    every_group = {f"scale/{path.name}" for path in (CONFIGS / "scale").iterdir()}
    assert left_out >= {"model", "scale", *every_group}
    config = compose_recipe(CONFIGS, "wmt14_en_de", [])
    own = {"model.attention_type"}  # of the other recipes
    sections = {"model", "task", "checkpoint", "common", "dataset", "optimization"}
    keys = {key for key in left_out - own if key.partition(".")[0] in sections and "." in key}
    assert not [key for key in keys if OmegaConf.select(config, key, default="absent") == "absent"]


def test_folders_of_sweeps_cannot_meet():
    """Those of two sweeps that begin in the same second, and those of a sweep's jobs."""
    hydra = yaml.safe_load((CONFIGS / "recipe" / "folders.yaml").read_text())["hydra"]
    assert "%f" in hydra["sweep"]["dir"]
    assert "job.num" in hydra["sweep"]["subdir"]
    assert hydra["run"]["dir"] == "${checkpoint.save_dir}/hydra"
