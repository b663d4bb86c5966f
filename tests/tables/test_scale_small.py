"""Scale small: every cell of every table composes, at the sizes, budgets and data it says."""

import math
import shlex
from pathlib import Path

import pytest
import yaml

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.data_commands import HELD_OUT, SMALL_EXAMPLES, commands_for
from fairseq_plugins.experiments import EXPERIMENTS, experiment_of
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.glue.tasks import GLUE
from fairseq_plugins.papers import PUBLISHED, SCALE_NAMES, TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.render import render
from fairseq_plugins.runner.plan import devices_of, plan
from fairseq_plugins.statistics.judged import JudgedTable
from tests.quick import first_of_each_kind
from tests.tables.test_glue_configs import SIZES

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SMALL = "small"
OWN_SCALES = tuple(scale for scale in SCALE_NAMES if scale != PUBLISHED)
SQUAD_WINDOWS = {"v1": 28_024, "v2": 17_995}  # of the questions there are, in 8,000 merges


def run(table: str, row: str = "rope", attention: str = "vanilla") -> PlannedRun:
    return plan_run(CONFIGS, Run(table, SMALL, row, attention, 1), Devices(1))


def tokens(training: Training) -> int:
    """What a training sees, from its own settings."""
    config = training.config
    length = int(config["task"]["tokens_per_sample"])
    return training.max_update * total_batch(config) * length


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_scales_are_in_one_order_and_trainings_from_random_weights_have_all(name: str) -> None:
    experiment = EXPERIMENTS[name]
    scales = tuple(experiment.scales)
    assert scales == tuple(one for one in SCALE_NAMES if one in scales)
    if experiment.origin is None:
        assert scales == OWN_SCALES


AT_SMALL = [name for name in TABLES if SMALL in experiment_of(name).scales]
# The first table of each recipe; others compose the same configurations again.
COMPOSED = first_of_each_kind(
    [TABLES[name] for name in AT_SMALL],
    lambda table: experiment_of(table.name).recipe,
    lambda table: table.name,
)


@pytest.mark.parametrize("name", AT_SMALL)
def test_every_table_says_its_commands_without_data_or_a_gpu(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(CONFIGS)
    row, attention = TABLES[name].row_names[0], TABLES[name].attentions[-1]
    words = [name, "--scale", SMALL, "--rows", row, "--attention", attention, "--seeds", "1"]
    assert main([*words, "--dry-run"], tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    trainings = [line for line in lines if line.startswith("fairseq-hydra-train ")]
    assert trainings
    assert all(f"={SMALL} " in line and " common.cpu=false " in line for line in trainings)
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.parametrize("table", COMPOSED)
def test_every_row_composes_under_every_attention(table: Table) -> None:
    scale = experiment_of(table.name).scales[SMALL]
    attentions = [*table.attentions, *table.extra_attentions]
    planned, skipped = plan(
        CONFIGS, table, scale, Devices(scale.gpus), rows=None, attentions=attentions, seeds=[1]
    )
    cells = {(one.run.row, one.run.attention) for one in planned}
    assert set(table.row_names) <= {row for row, _ in cells}
    empty = {*skipped}
    rows = {row for row, _ in cells | empty}
    assert cells | empty == {(row, attention) for row in rows for attention in attentions}
    assert all(skipped.values())
    for training in (t for one in planned for run in (*one.ancestors, one) for t in run.trainings):
        _is_small(training)


def _is_small(training: Training) -> None:
    config = training.config
    assert config["common"]["fp16"] and not config["common"]["bf16"] and not config["common"]["cpu"]
    assert config["distributed_training"]["distributed_world_size"] == 1
    model = config["model"]
    for side in ("encoder", "decoder"):
        if f"{side}_layers" in model:
            sizes = [model[f"{side}_{key}"] for key in ("layers", "embed_dim", "attention_heads")]
            assert sizes == [4, 256, 4], training.folder


@pytest.mark.parametrize("table", AT_SMALL)
def test_the_commands_of_the_data_make_the_folders_that_are_read(table: str) -> None:
    one = run(table)
    folders = {part.as_posix() for part in one.data}
    told = {command for part in one.data for command in commands_for(part / "dict.txt")}
    assert told >= set(one.prepare)
    outputs = set()
    for command in told:
        words = shlex.split(command)
        outputs.add(words[words.index("--output") + 1])
        if "--bpe" in words:
            assert words[words.index("--bpe") + 1] == "data/novels-small/bpe"
    assert all(any(f == o or f.startswith(f"{o}/") for o in outputs) for f in folders)


@pytest.mark.parametrize("table", ["table2", "table5"])
def test_language_models_see_25_million_pieces(table: str) -> None:
    (training,) = run(table).trainings
    assert training.config["task"]["tokens_per_sample"] == 512
    assert tokens(training) == pytest.approx(25e6, rel=1e-3)


def test_masked_models_see_27_million_pieces_from_short_samples_to_long_ones() -> None:
    continued = run("bert_continued", "shaw_only")
    for stages in (
        run("table8").trainings,
        [training for one in (*continued.ancestors, continued) for training in one.trainings],
    ):
        assert [t.config["task"]["tokens_per_sample"] for t in stages] == [16, 32, 128]
        assert [t.config["model"]["max_positions"] for t in stages] == [128] * 3
        assert [t.max_update for t in stages] == [2000, 2000, 900]
        assert {total_batch(t.config) for t in stages} == {128}
        assert sum(map(tokens, stages)) == pytest.approx(27e6, rel=2e-3)


def test_each_stage_starts_from_the_best_checkpoint_of_the_one_before() -> None:
    first, second, last = run("table8").trainings
    option = "checkpoint.finetune_from_model="
    assert not any(word.startswith(option) for word in first.command)
    assert f"{option}{first.folder.as_posix()}/checkpoint_best.pt" in second.command
    assert f"{option}{second.folder.as_posix()}/checkpoint_best.pt" in last.command
    assert last.folder == run("table8").run.folder  # where Table 3 takes it from
    tuned = run("table3").trainings[0]
    assert f"{option}{last.folder.as_posix()}/checkpoint_best.pt" in tuned.command


def test_the_last_stage_is_what_is_reported() -> None:
    parts = {"samples_16": {"valid_loss": 9.0}, "": {"valid_loss": 5.0}}
    assert experiment_of("table8").combine(parts) == {"valid_loss": 5.0}


def test_the_largest_and_the_smallest_scale_have_one_stage() -> None:
    stages = {scale: len(EXPERIMENTS["mlm"].variants(scale)) for scale in OWN_SCALES}
    assert stages == {"toy": 1, "mini": 3, "small": 3, "paper": 1}


@pytest.mark.parametrize("name", ["table3", "bert_table3"])
def test_glue_is_three_epochs_chosen_on_held_out_examples(name: str) -> None:
    sizes = {task.name: min(SMALL_EXAMPLES, SIZES[task.name][0]) for task in GLUE}
    one = run(name)
    found = {training.variant.kind for training in one.trainings}
    assert len(one.trainings) == 2 * len(found)  # two learning rates
    for training in one.trainings:
        config = training.config
        epoch = math.ceil((sizes[training.variant.kind] - HELD_OUT) / 32)
        assert total_batch(config) == 32
        assert training.max_update == config["lr_scheduler"]["total_num_update"] == 3 * epoch
        assert config["optimization"]["max_epoch"] == 0
        assert config["dataset"]["valid_subset"] == "held_out"
        # The BERT paper takes the last checkpoint, LRPE the best one.
        is_bert = name == "bert_table3"
        assert config["dataset"]["disable_validation"] is is_bert
        warmup = 0 if is_bert else math.ceil(0.06 * 3 * epoch)
        assert config["lr_scheduler"]["warmup_updates"] == warmup
        checkpoint = training.folder / training.evaluated
        steps = one.experiment.steps(training, checkpoint, one.run, 1)
        assert [step.log for step in steps] == ["evaluate-valid.log", "evaluate-held_out.log"]


def test_squad_is_six_epochs_of_all_questions() -> None:
    for training in run("bert_table4").trainings:
        windows = SQUAD_WINDOWS[training.variant.name]
        assert training.max_update == 6 * math.ceil(windows / total_batch(training.config))
        assert training.config["optimization"]["max_epoch"] == 0
        assert training.evaluated == "checkpoint_last.pt"  # not chosen on the development set


def test_precision_is_set_in_one_place() -> None:
    setting = [
        path.relative_to(CONFIGS).as_posix()
        for path in CONFIGS.rglob("*.yaml")
        if "bf16" in ((yaml.safe_load(path.read_text()) or {}).get("common") or {})
    ]
    assert setting == ["recipe/one_gpu.yaml"]


def test_a_cpu_is_refused() -> None:
    scale = experiment_of("table2").scales[SMALL]
    assert scale.gpus == 1
    with pytest.raises(ValueError, match="`--gpus` must be at least 1 at scale small"):
        devices_of(scale, 0, 1, is_slurm=False)


def test_pages_say_the_stages(make_result) -> None:  # type: ignore[no-untyped-def]
    one = run("table8")
    metrics = {"valid_loss": 5.0, "valid_ppl": 32.0, "best_update": 900, "curve": [[900, 5.0]]}
    result = make_result("rope", "vanilla", 1, 32.0, table="table8", scale=SMALL, config=one.config)
    result["metrics"] |= metrics
    text = render(JudgedTable.of(TABLES["table8"], [result]), SMALL).markdown()
    assert text.startswith("# ") and "scale `small`" in text.splitlines()[0]
    assert "Data: wikitext-2 " in text  # that of the result
    for length, updates in ((16, "2,000"), (32, "2,000"), (128, "900")):
        assert f"{updates} updates of 128 sequences of at most {length} tokens" in text
    assert "(samples of 16)" in text


@pytest.mark.parametrize(
    ("name", "told"),
    [("table3", "Rate and epoch are chosen"), ("bert_table3", "The rate is chosen")],
)
def test_pages_say_what_is_chosen_on_what_is_held_out(name: str, told: str) -> None:
    one = run(name)
    metrics = {"tried": {"SST-2-lr0.0001": 50.0}, "replaced": [], "averaged": ["SST-2"]}
    made = {"metrics": metrics, "config": one.config, "scale": SMALL, "data": {}}
    (fact,) = one.experiment.caption_notes([made])
    assert f"{told} on a part of the training set that is held out." in fact
