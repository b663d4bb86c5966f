"""The recipes of scale small train on a CPU, in full size, for two updates on very little text."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fairseq_plugins.data import prepare_mlm
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.glue import prepare as prepare_glue
from fairseq_plugins.glue.tasks import find_tasks
from fairseq_plugins.records.runs import Run
from fairseq_plugins.squad import prepare as prepare_squad
from fairseq_plugins.squad.features import WindowSizes
from fairseq_plugins.translation import prepare as prepare_translation
from tests.integration.helpers import REPOSITORY, USER_DIR, load_checkpoint, train_composed
from tests.preprocessing import preprocess_here
from tests.recipes import compose_recipe

CONFIGS = REPOSITORY / "configs"
FEW = {
    "common.cpu": True,
    "common.fp16": False,
    "common.user_dir": USER_DIR,
    "dataset.num_workers": 0,
    "optimization.max_update": 2,
}

WITHOUT_ORIGIN = {"checkpoint.finetune_from_model": None}
PIECES = "data/novels-small/bpe"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of data named and made as those of scale small, of generated text."""
    folder = tmp_path_factory.mktemp("data")
    sentences = {"train": 40, "valid": 4, "test": 4}
    with preprocess_here():
        prepare_mlm.prepare_toy(folder / "novels-small", seed=1, sentences=sentences, merges=40)
    return folder


@pytest.fixture
def place(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to train in, where the data is where the recipes look for it."""
    (tmp_path / "data").mkdir()
    for made in data.iterdir():
        (tmp_path / "data" / made.name).symlink_to(made)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)  # some hundred megabytes


def plan(table: str, row: str, attention: str) -> PlannedRun:
    return plan_run(CONFIGS, Run(table, "small", row, attention, 1), Devices(1))


def train(training: Training, **more: object) -> None:
    """As its command says, but for FEW."""
    config = compose_recipe(CONFIGS, training.variant.recipe, training.overrides)
    for key, value in (FEW | more).items():
        OmegaConf.update(config, key, value)
    train_composed(config)
    state = load_checkpoint(training.folder / training.evaluated)
    assert state["optimizer_history"][-1]["num_updates"] == 2
    assert (
        state["cfg"]["model"]["position_encoding"] == training.config["model"]["position_encoding"]
    )


@pytest.mark.slow
def test_a_language_model_trains_on_text_prepared_for_masked_ones(place: Path) -> None:
    (training,) = plan("table2", "lrpe_type2", "linear").trainings
    train(training)


@pytest.mark.slow
def test_translation_trains(place: Path) -> None:
    settings = prepare_translation.Settings(40)
    pairs = {"train": 20, "valid": 4, "test": 4}
    prepare_translation.prepare_toy(place / "data" / "mid-en-de", settings, seed=1, pairs=pairs)
    (training,) = plan("table4", "lrpe_type2", "linear").trainings
    train(training, **{"task.source_lang": "qaa", "task.target_lang": "qab"})


@pytest.mark.slow
def test_stages_train_one_after_the_other(place: Path) -> None:
    stages = plan("table8", "learned", "linear").trainings
    assert [stage.config["task"]["tokens_per_sample"] for stage in stages] == [16, 32, 128]
    for training in stages:
        train(training)


@pytest.mark.slow
def test_glue_trains_with_held_out_examples(place: Path) -> None:
    examples = "".join(f"the cat number {n}\t{n % 2}\n" for n in range(20))
    (place / "raw" / "SST-2").mkdir(parents=True)
    for name in ("train", "dev"):
        (place / "raw" / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{examples}")
    options = prepare_glue.Options(place / PIECES, max_train=20_000, held_out=8)
    folder = place / "data" / "glue-small"
    prepare_glue.prepare(find_tasks(["SST-2"]), folder, options, [place / "raw"])
    training = plan("table3", "rope", "linear").trainings[0]
    assert training.data.name == "SST-2"
    train(training, **WITHOUT_ORIGIN)


def make_squad(place: Path, version: str) -> None:
    prepare_squad.prepare_toy(
        place / "data" / f"squad-v{version}-small",
        version=version,
        bpe=place / PIECES,
        seed=1,
        texts={"train": 3, "valid": 1},
        sizes=WindowSizes(128, 64, 40),
    )


@pytest.mark.slow
def test_squad_trains(place: Path) -> None:
    make_squad(place, "1.1")
    train(plan("bert_table4", "rope", "vanilla").trainings[0], **WITHOUT_ORIGIN)


@pytest.mark.slow  # five trainings
def test_a_continued_model_trains_on_and_answers_questions(place: Path) -> None:
    for version in ("1.1", "2.0"):
        make_squad(place, version)
    planned = plan("bert_table4", "shaw_only", "vanilla")
    for training in (t for one in (*planned.ancestors, planned) for t in one.trainings):
        train(training)
