"""Figure 7 of the BERT paper: parts of a pre-training, and SQuAD after each; no training is run."""

import copy
import itertools
import json
from pathlib import Path

import pytest

from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.experiments.squad import BERT_FIGURE7
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert import MEDIUM_ROWS
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.records.results import check_result, load_result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.observations import short_sample_sentences
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import part_lines
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TABLE = "bert_figure7"
RUN = Run(TABLE, "toy", "learned", "vanilla", 1)
GPUS = {"toy": 0, "mini": 0, "small": 1, "paper": 8}


def planned(scale: str, row: str = "learned") -> PlannedRun:
    return plan_run(CONFIGS, Run(TABLE, scale, row, "vanilla", 1), Devices(GPUS[scale]))


def split(one: PlannedRun) -> tuple[list[Training], list[Training]]:
    """Its pre-training, and its fine-tunings."""
    parts = [t for t in one.trainings if t.variant.recipe == one.experiment.recipe]
    return parts, [t for t in one.trainings if t not in parts]


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(scale, marks=[] if scale == "mini" else [pytest.mark.slow])
        for scale in BERT_FIGURE7.scales
    ],
)
def test_samples_get_longer_and_every_model_has_one_size_and_enough_positions(scale: str) -> None:
    parts, tuned = split(planned(scale))
    lengths = [part.config["task"]["tokens_per_sample"] for part in parts]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]
    assert len(tuned) == 2 * len(parts)
    for key in ("layers", "embed_dim", "attention_heads", "ffn_embed_dim"):
        assert len({t.config["model"][f"encoder_{key}"] for t in (*parts, *tuned)}) == 1
    # A table that is learned keeps its rows, of which short samples train the first ones alone.
    (reach,) = {t.config["model"]["max_positions"] for t in (*parts, *tuned)}
    assert reach >= lengths[-1]
    assert len({t.config["optimization"]["max_update"] for t in tuned[::2]}) == 1
    # No part lets its rate fall: after each it is one of many epochs.
    for part in parts:
        config = part.config
        (rate,) = config["optimization"]["lr"]
        assert config["lr_scheduler"]["end_learning_rate"] == rate
        assert config["lr_scheduler"]["warmup_updates"] < part.max_update


@pytest.mark.parametrize("scale", ["toy", "mini", "small"])
def test_small_models_are_those_of_other_tables_and_read_the_same_pieces(scale: str) -> None:
    one = planned(scale)
    squad = plan_run(CONFIGS, Run("bert_table4", scale, "learned", "vanilla", 1), Devices(0))
    sizes = {key: v for key, v in squad.final.config["model"].items() if "encoder" in key}
    assert one.final.config["model"].items() >= sizes.items()
    assert set(one.data) == {*squad.data}


def test_paper_scale_is_table_6() -> None:
    parts, tuned = split(planned("paper"))
    config = [part.config for part in parts]
    assert [c["task"]["tokens_per_sample"] for c in config] == [128] * 10 + [512] * 2
    assert [total_batch(c) for c in config] == [128] * 10 + [512] * 2
    assert {tuple(c["optimization"]["lr"]) for c in config} == {(5e-5,)}
    assert all(c["task"]["mask_whole_words"] for c in config)
    assert {t.config["model"]["encoder_layers"] for t in (*parts, *tuned)} == {8}
    # An epoch of one length has as many tokens as one of the other.
    tokens = [part.max_update * n * n for part, n in ((parts[0], 128), (parts[-1], 512))]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.01)
    assert [t.max_update for t in tuned[:2]] == [8310, 12400]  # as in Table 4


def test_every_training_starts_from_the_part_before_it() -> None:
    parts, tuned = split(planned("mini", "shaw_only"))
    option = "checkpoint.finetune_from_model="
    assert not any(word.startswith(option) for word in parts[0].command)
    for before, part in itertools.pairwise(parts):
        assert f"{option}{before.folder.as_posix()}/checkpoint_best.pt" in part.command
    for number, training in enumerate(tuned):
        start = parts[number // 2].folder.as_posix()
        assert f"{option}{start}/checkpoint_best.pt" in training.command
        assert "model=shaw_only" in training.command
        assert "scale/squad=mini" in training.command
    assert "scale/mlm=mini" in parts[0].command


@pytest.mark.usefixtures("real_pictures")
def test_the_page_the_figure_and_the_json_have_every_part(place: Path) -> None:
    runs = [RUN, Run(TABLE, "toy", "shaw_only", "vanilla", 1)]
    fake = FakeCommands(place)
    todo = [plan_run(place / "configs", run, Devices(0)) for run in runs]
    assert run_table(place, todo, RunOptions(), launcher=fake) == 0
    assert fake.trained[:4] == [
        f"{TABLE}/toy/{RUN.name}/{name}" for name in ("part_1", "part_1_v1", "part_1_v2", "part_2")
    ]
    result = load_result(place / RUN.result, BERT_FIGURE7.metrics)
    kinds = ["samples of 16", "SQuAD v1", "SQuAD v2", "samples of 64"]
    assert [*result["config"]["trainings"]] == kinds
    parts = result["metrics"]["parts"]
    assert [part["samples"] for part in parts] == [16, 16, 64]
    assert [part["updates"] for part in parts] == [100, 200, 300]
    assert {part["v2_f1"] for part in parts} == {result["metrics"]["short_v1_f1"]} == {70.0}
    # Of the checkpoints none is left but those from which another training started.
    left = sorted(path.parent.name for path in (place / RUN.folder).rglob("*.pt"))
    assert left == ["part_1", "part_2", "part_3"]

    page = (place / f"results/{TABLE}/toy.md").read_text()
    assert "on samples of 16, 16, 64 tokens" in page and "a warm-up of 50 updates" in page
    assert "Figure 7 as a figure](toy.png)" in page and "[toy.json](toy.json)" in page
    for suffix in ("png", "svg"):
        assert (place / f"results/{TABLE}/toy.{suffix}").stat().st_size > 10_000
    numbers = json.loads((place / f"results/{TABLE}/toy.json").read_text())
    assert numbers["samples"] == [16, 16, 64]
    assert numbers["v1_f1"] == {"learned-vanilla": [70.0] * 3, "shaw_only-vanilla": [70.0] * 3}

    again = FakeCommands(place)
    assert run_table(place, todo, RunOptions(), launcher=again) == 0
    assert again.trained == []

    lines = part_lines([result, _with(result, 1, v1_f1=80.0)], "v1_f1")
    assert lines == {("learned", "vanilla"): [(1.0, 70.0), (2.0, 75.0), (3.0, 70.0)]}
    schema = experiment_of(TABLE).metrics
    with pytest.raises(ValueError, match="short_v1_f1 must be that of its part, 80"):
        check_result(_with(result, 1, v1_f1=80.0), schema)
    with pytest.raises(ValueError, match="must have samples that are shorter"):
        check_result(_with(_with(result, 0, samples=64), 1, samples=64), schema)


def test_the_page_says_what_short_samples_decide() -> None:
    table = TABLES[TABLE]
    floors = {"short_v2_f1": {"answers nothing": 50.0}}

    def seen(v2: float, **v1: float) -> str:
        cells = {
            (row, "vanilla"): {"short_v1_f1": {1: own}, "short_v2_f1": {1: v2}}
            for row, own in v1.items()
        }
        found = short_sample_sentences(JudgedTable(table, cells, floors))
        return "".join(section.text for section in found)

    said = seen(50.0, learned=5.0, shaw_only=9.0, learnable_sinusoidal=4.0)
    v1 = "is above that of `learned` (5.00): true of `shaw_only` (9.00); not of `learnable_sin"
    assert f"F1, v1.1, after short samples, {v1}" in said and "Each row has one seed" in said
    assert "No row's F1, v2.0, after short samples" in said and "decide nothing" in said
    assert "v2.0, after short samples, is above that of" in seen(70.0, learned=5.0, shaw_only=9.0)
    assert seen(50.0, shaw_only=9.0) == ""
    assert short_sample_sentences(JudgedTable(TABLES["bert_table4"], {}, {})) == []


def test_rows_are_those_of_the_figure() -> None:
    assert TABLES[TABLE].row_names == MEDIUM_ROWS


def _with(result: dict, number: int, **changes: float) -> dict:
    """A result with other numbers after a part."""
    changed = copy.deepcopy(result)
    changed["metrics"]["parts"][number] |= changes
    return changed
