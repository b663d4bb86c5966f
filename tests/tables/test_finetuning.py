"""Tables of fine-tuning, with stand-ins for the commands: what a run starts from, what is kept of
its trainings, which one counts."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image

from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.glue import BERT_GLUE, LRPE_GLUE
from fairseq_plugins.experiments.mt import TRANSLATION
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.squad import SQUAD
from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.papers.bert import (
    BERT_GLUE_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
    BERT_START_TABLE,
)
from fairseq_plugins.papers.lrpe import TABLE_3
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.render import render
from fairseq_plugins.runner import checkpoints, preflight
from fairseq_plugins.runner.journal import Journal
from fairseq_plugins.runner.progress import Progress
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.statistics.judged import JudgedTable
from tests.quick import first_of_each_kind
from tests.recipes import compose_recipe, record
from tests.tables.fake_commands import FakeCommands
from tests.tables.fake_fairseq import run_table

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
START = Run("bert_start", "toy", "learned", "vanilla", 1)


def read(path):
    experiment = experiment_of(path.parts[-3])
    return results.read_result(path, experiment.metrics)


def work(root, table, row, fake, seed=1, **options):
    run = Run(table.name, "toy", row, "vanilla", seed)
    planned = plan_run(root / "configs", run, Devices(0))
    status = run_table(root, [planned], RunOptions(**options), launcher=fake)
    return status, run


def test_a_run_is_pretrained_then_fine_tuned_and_measured(place):
    fake = FakeCommands(place, scores={"Order": 90.0, "Place": 70.0})
    status, run = work(place, TABLE_3, "rope", fake)
    assert status == 0
    assert fake.trained == [
        "table8/toy/rope-vanilla-s1",
        "table3/toy/rope-vanilla-s1/Order-lr0.001",
        "table3/toy/rope-vanilla-s1/Place-lr0.001",
    ]
    assert set(fake.started_from) == {"checkpoints/table8/toy/rope-vanilla-s1/checkpoint_best.pt"}
    result = read(place / run.result)
    assert result["metrics"]["average"] == 80.0
    assert result["metrics"]["tried"] == {"Order-lr0.001": 90.0, "Place-lr0.001": 70.0}
    assert set(result["config"]["trainings"]) == {"pretraining", "Order", "Place"}
    updates = {
        f"{kind}-lr0.001": result["config"]["trainings"][kind]["optimization"]["max_update"]
        for kind in ("Order", "Place")
    }
    assert all(updates.values())
    assert Journal.read(place / run.folder).updates == updates
    assert read(place / "results/table8/toy/rope-vanilla-s1.json")
    assert not list((place / run.folder).rglob("*.pt"))
    assert "80.00 (1)" in (place / "results/table3/toy.md").read_text()


def test_the_bert_papers_rows_replace_the_embedding_of_one_model(place):
    fake = FakeCommands(place)
    status, run = work(place, BERT_SQUAD_TABLE, "rope", fake)
    assert status == 0
    tuned = [f"bert_table4/toy/rope-vanilla-s1/{name}" for name in ("v1", "v2")]
    continued = "bert_continued/toy/rope-vanilla-s1"
    assert fake.trained == ["bert_start/toy/learned-vanilla-s1", continued, *tuned]
    best = "checkpoints/{}/checkpoint_best.pt"
    assert fake.started_from == [
        best.format("bert_start/toy/learned-vanilla-s1"),
        best.format(continued),
        best.format(continued),
    ]
    config = read(place / run.result)["config"]["trainings"]
    assert [*config] == ["pretraining", "continued", "SQuAD v1", "SQuAD v2"]
    encodings = [training["model"]["position_encoding"] for training in config.values()]
    assert encodings == ["learned", "rope", "rope", "rope"]
    another = FakeCommands(place)
    work(place, BERT_SQUAD_TABLE, "shaw_only", another)
    assert another.trained[0] == "bert_continued/toy/shaw_only-vanilla-s1"


def test_fine_tuned_models_stay_where_they_are_asked_for(place):
    status, run = work(place, TABLE_3, "rope", FakeCommands(place), keep="tuned")
    assert status == 0
    left = sorted(
        path.relative_to(place / run.folder) for path in (place / run.folder).rglob("*.pt")
    )
    assert [*map(str, left)] == [
        "Order-lr0.001/checkpoint_best.pt", "Place-lr0.001/checkpoint_best.pt"
    ]  # fmt: skip


def test_a_resumed_run_keeps_what_it_was_begun_with_unless_told(place, capsys):
    def resume(failing="", status=1, **options):
        capsys.readouterr()
        found, run = work(place, TABLE_3, "rope", FakeCommands(place, failing=failing), **options)
        assert found == status
        tuned = {path.parent.name for path in (place / run.folder).rglob("checkpoint_best.pt")}
        return tuned, capsys.readouterr().out

    order, both = {"Order-lr0.001"}, {"Order-lr0.001", "Place-lr0.001"}
    left, said = resume("Place", keep="tuned")
    assert left == order and "replaces" not in said
    assert resume("Place")[0] == order
    left, said = resume(status=0)
    assert left == both and "replaces" not in said
    # The model that it started from is another table's, which has not asked.
    assert (place / "checkpoints/table8/toy/rope-vanilla-s1/checkpoint_last.pt").is_file()
    left, said = resume(status=0, keep="best", missing_checkpoints=True)
    assert left == both, said  # it is done, and nothing is deleted
    resume("Place", keep="tuned", force=True)
    left, said = resume(status=0, keep="best")
    assert not left and "--keep best replaces --keep tuned, with which it was begun" in said


@pytest.mark.usefixtures("real_pictures")
def test_what_is_only_measured_takes_the_checkpoint_of_the_row(place):
    fake = FakeCommands(place, scores={"monotonicity_20": 0.01234567})
    status, run = work(place, BERT_PROPERTIES_TABLE, "shaw_only", fake)
    assert status == 0
    continued = "bert_continued/toy/shaw_only-vanilla-s1"
    assert fake.trained == ["bert_start/toy/learned-vanilla-s1", continued]
    (measured,) = fake.measured
    assert measured[1:4] == (
        "identical-words", "--path", f"checkpoints/{continued}/checkpoint_best.pt"
    )  # fmt: skip
    result = read(place / run.result)
    assert result["metrics"]["monotonicity_20"] == 0.0123457
    assert result["metrics"]["translation_invariance"] is None
    assert result["metrics"]["by_offset"]["monotonicity"] == [0.0123457, None]
    assert result["metrics"]["train_seconds"] == 0
    assert [*result["config"]["trainings"]] == ["pretraining", "continued"]
    assert [command.split()[0] for command in result["command"]] == [
        *["fairseq-hydra-train"] * 2,
        "python",
    ]
    page = (place / "results/bert_table2/toy.md").read_text()
    line = next(line for line in page.splitlines() if "`shaw_only`" in line)
    assert "| 0.0048 / 0.0123 (1) |" in line and "| 1.1930 / 1.2500 (1) |" in line
    assert "| 0.1178 / - |" in line
    assert "minutes per run" not in page
    assert {path.name for path in (place / run.folder).iterdir()} == {
        "run.json", "attention.npy", "identical_words.log"
    }  # fmt: skip
    picture = place / "results/bert_table2/toy.png"
    assert (image.imread(picture)[..., 0] < 0.1).mean() > 0.05  # half of one of four panels
    assert picture.with_suffix(".svg").read_text().count("<image") == 1
    numbers = json.loads(picture.with_suffix(".json").read_text())["weights"]
    assert numbers == {"shaw_only-vanilla-s1": np.tri(9).tolist()}

    def panels() -> set[str]:
        return {*json.loads(picture.with_suffix(".json").read_text())["weights"]}

    # Of rows beyond the paper those are left out whose weights are gone.
    _, beyond = work(place, BERT_PROPERTIES_TABLE, "rope", FakeCommands(place))
    assert panels() == {"shaw_only-vanilla-s1", "rope-vanilla-s1"}
    (place / beyond.folder / "attention.npy").unlink()
    work(place, BERT_PROPERTIES_TABLE, "sinusoidal", FakeCommands(place))
    assert panels() == {"shaw_only-vanilla-s1", "sinusoidal-vanilla-s1"}
    # The figure is not drawn anew from some of the paper's.
    before = picture.read_bytes()
    (place / run.folder / "attention.npy").unlink()
    work(place, BERT_PROPERTIES_TABLE, "none", FakeCommands(place))
    assert picture.read_bytes() == before
    assert "`none`" in (place / "results/bert_table2/toy.md").read_text()


def test_seeds_of_properties_are_those_of_the_models_and_of_one_start(place):
    fake = FakeCommands(place, scores={"monotonicity_20": 0.1})
    assert work(place, BERT_PROPERTIES_TABLE, "shaw_only", fake, seed=2)[0] == 0
    assert fake.trained == [
        "bert_start/toy/learned-vanilla-s1",
        "bert_continued/toy/shaw_only-vanilla-s2",
    ]
    assert fake.measured[0][-3:-1] == ("--seed", "2")


def test_a_model_that_another_process_trains_is_waited_for_and_used(place, monkeypatch):
    work(place, BERT_START_TABLE, "learned", FakeCommands(place))
    (place / START.result).rename(place / "elsewhere.json")
    is_held, is_awaited, heard = threading.Event(), threading.Event(), []
    held = (place / START.folder).with_name(f"{START.folder.name}.lock")

    def train_elsewhere():
        with checkpoints.exclusive(place / START.folder):
            held.write_text("1 on elsewhere")  # this process does not speak of its own threads
            is_held.set()
            heard.append(is_awaited.wait(timeout=60))
            (place / "elsewhere.json").rename(place / START.result)

    def say(self, text):
        if "learned-vanilla-s1: process" in text and "waiting" in text:
            is_awaited.set()

    monkeypatch.setattr(Progress, "say", say)
    other = threading.Thread(target=train_elsewhere)
    other.start()
    assert is_held.wait(timeout=60)
    fake = FakeCommands(place)
    status, _ = work(place, BERT_SQUAD_TABLE, "rope", fake)
    other.join()
    assert status == 0 and heard == [True]
    assert fake.trained[0] == "bert_continued/toy/rope-vanilla-s1"


def test_half_a_pretraining_is_nothing_to_start_from(place):
    work(place, BERT_START_TABLE, "learned", FakeCommands(place, updates=10))
    fake = FakeCommands(place)
    assert work(place, BERT_SQUAD_TABLE, "rope", fake)[0] == 0
    assert fake.trained[0] == "bert_start/toy/learned-vanilla-s1"


def test_a_pretraining_of_another_experiment_is_refused_once_for_all_rows(place, capsys):
    work(place, BERT_START_TABLE, "learned", FakeCommands(place))
    path = place / START.result
    result = read_content(path)
    result["config"]["optimization"]["max_update"] = 7
    path.write_text(json.dumps(result))
    fake = FakeCommands(place)
    runs = [Run("bert_table4", "toy", row, "vanilla", 1) for row in ("rope", "none")]
    planned = [plan_run(place / "configs", run, Devices(0)) for run in runs]
    status = run_table(place, planned, RunOptions(), launcher=fake)
    assert (status, fake.trained) == (1, [])
    output = capsys.readouterr().out
    assert "scripts/bert_start.sh --force" in output
    assert "max_update: 7 -> 250" in output
    assert "FAILED rope" in output and "FAILED none" in output


def test_what_rows_start_from_has_a_page_without_the_papers_columns(place):
    work(place, BERT_SQUAD_TABLE, "none", FakeCommands(place))
    for table, row in (("bert_start", "learned"), ("bert_continued", "none")):
        page = (place / f"results/{table}/toy.md").read_text()
        assert f"| `{row}` | 4.00 (1) | 16.00 (1) |" in page
        assert "paper loss" not in page
        for suffix in ("png", "svg"):
            assert (place / f"results/{table}/toy.{suffix}").is_file()
        numbers = json.loads((place / f"results/{table}/toy.json").read_text())
        assert numbers["rows"] == {f"{row}-vanilla": {"mean": 16.0, "deviation": None, "seeds": 1}}


def test_a_cut_off_fine_tuning_goes_on_from_its_own_checkpoint_alone(place):
    """fairseq refuses another checkpoint to go on from beside one to fine-tune, and takes the
    latter only where there is no checkpoint_last.pt."""
    one = plan_run(place / "configs", Run("bert_table4", "toy", "none", "vanilla", 1), Devices(0))
    training = one.trainings[0]
    folder = place / training.folder
    folder.mkdir(parents=True)
    state = {"model": {}, "optimizer_history": [{"num_updates": 5}]}
    torch.save(state, folder / "checkpoint_2_5.pt")
    (folder / "checkpoint_last.pt").write_bytes(b"PK")
    assert checkpoints.find_restart(folder, print) == 5
    assert checkpoints.read_updates(folder / "checkpoint_last.pt") == 5
    words = " ".join(training.command)
    assert "checkpoint.finetune_from_model=" in words and "restore_file" not in words


def test_another_table_starts_from_the_same_pretrained_model(place):
    work(place, BERT_GLUE_TABLE, "rope", FakeCommands(place))
    fake = FakeCommands(place)
    status, run = work(place, BERT_SQUAD_TABLE, "rope", fake)
    assert status == 0
    assert fake.trained == [f"bert_table4/toy/rope-vanilla-s1/{name}" for name in ("v1", "v2")]
    metrics = read(place / run.result)["metrics"]
    assert metrics | {"v1_exact": 60.0, "v1_f1": 70.0, "v2_exact": 60.0, "v2_f1": 70.0} == metrics


def test_a_pretrained_model_that_is_gone_is_made_again_and_its_result_kept(place):
    work(place, BERT_GLUE_TABLE, "rope", FakeCommands(place))
    path = place / "results/bert_continued/toy/rope-vanilla-s1.json"
    before = path.read_text()
    for checkpoint in (place / "checkpoints/bert_continued").rglob("*.pt"):
        checkpoint.unlink()
    fake = FakeCommands(place)
    work(place, BERT_SQUAD_TABLE, "rope", fake)
    assert fake.trained[0] == "bert_continued/toy/rope-vanilla-s1"
    assert path.read_text() == before


def test_a_run_that_failed_goes_on_after_the_trainings_that_are_done(place, capsys):
    status, run = work(place, TABLE_3, "rope", FakeCommands(place, failing="Place"))
    assert status == 1
    assert "training ended with status 1" in capsys.readouterr().out
    fake = FakeCommands(place)
    status, _ = work(place, TABLE_3, "rope", fake)
    assert status == 0
    assert fake.trained == ["table3/toy/rope-vanilla-s1/Place-lr0.001"]
    assert read(place / run.result)


def test_data_in_other_pieces_than_the_pretraining_is_refused_with_file_and_line(place):
    words = (place / "data/toy-mlm/dict.txt").read_text()
    for task in ("Order", "Place"):
        (place / "data/toy-glue" / task / "input0/dict.txt").write_text(words)
    run = Run("table3", "toy", "rope", "vanilla", 1)
    planned = plan_run(place / "configs", run, Devices(0))
    preflight.check_ready(place, [planned])
    path = place / "data/toy-glue/Place/input0/dict.txt"
    path.write_text(words.replace("b 2", "x 2"))
    with pytest.raises(ValueError, match=r"Place/input0/dict.txt, line 2: must be 'b'.*'x'"):
        preflight.check_ready(place, [planned])


@pytest.mark.parametrize("experiment", [LRPE_GLUE, BERT_GLUE])
def test_the_best_learning_rate_of_each_task_counts(experiment):
    variants = experiment.variants("paper")
    tasks = {variant.kind for variant in variants}
    rates = experiment.learning_rates["paper"]
    assert len(variants) == len(rates) * len(tasks)
    assert {v.learning_rate for v in variants} == set(rates)
    parts = {}
    for variant in variants:
        # Other metrics than the columns' say the opposite.
        score = 50 + 1e5 * variant.learning_rate
        wanted = {source.metric for source in experiment.sources.values()}
        measured = {name: score if name in wanted else -score for name in ("accuracy", "other")}
        if variant.kind in ("MRPC", "QQP") and experiment is BERT_GLUE:
            measured = {"f1": score, "accuracy": -score}
        if variant.kind == "CoLA":
            measured = {"matthews": score}
        if variant.kind == "STS-B":
            measured = {"spearman": score}
        parts[variant.name] = {
            "task": variant.kind,
            "learning_rate": variant.learning_rate,
            "first": "other",
            "subsets": {"valid": measured, "valid1": measured},
        }
    found = experiment.combine(parts)
    assert set(found["learning_rates"].values()) == {max(rates)}
    assert found["average"] == pytest.approx(50 + 1e5 * max(rates))
    assert "WNLI" not in found["averaged"]


def test_a_dagger_stands_where_seeds_differ_from_the_learned_embedding(make_result):
    def result(row, seed, value):
        made = make_result(row, "vanilla", seed, 1.0, table="bert_table4")
        made["metrics"] |= dict.fromkeys((c.metric for c in BERT_SQUAD_TABLE.columns), value)
        made["config"] = {"trainings": {"SQuAD v1": made["config"]}}
        return made

    results = [
        *(result("learned", seed, 80 + 0.1 * seed) for seed in (1, 2, 3)),
        *(result("none", seed, 40 + 0.1 * seed) for seed in (1, 2, 3)),
        *(result("sinusoidal", seed, 80.05 + 0.1 * seed) for seed in (1, 2, 3)),
    ]
    page = render(JudgedTable.of(BERT_SQUAD_TABLE, results), "mini").markdown()
    assert "/ 40.20 ± 0.10 (3)†" in page
    assert "/ 80.25 ± 0.10 (3) |" in page
    assert "/ 80.20 ± 0.10 (3) |" in page


@pytest.mark.parametrize(
    ("table", "start", "told"),
    [
        ("bert_table4", "bert_continued/mini/rope-vanilla-s1", "how much fine-tuning varies"),
        pytest.param(
            *("bert_table3", "bert_continued/mini/rope-vanilla-s1", "how much fine-tuning varies"),
            marks=pytest.mark.slow,
        ),
        ("table3", "table8/mini/rope-vanilla-s1", "how much fine-tuning varies"),
        (
            "bert_continued",
            "bert_start/mini/learned-vanilla-s1",
            "how much continued training varies",
        ),
        ("bert_table2", "bert_continued/mini/rope-vanilla-s3", ""),
        ("table8", "", ""),
    ],
)
def test_the_caption_says_where_seeds_leave_out_the_pre_training(
    configs, make_result, table, start, told
):
    """As a run of seed 3 is planned."""
    planned = plan_run(configs, Run(table, "mini", "rope", "vanilla", 3), Devices(0))
    before = planned.ancestors[-1].final.folder if planned.ancestors else None
    assert before == (Path("checkpoints", start) if start else None)
    page = "\n".join(caption(TABLES[table], "mini", [made_by(planned, make_result)]).notes)
    assert (told in page) if told else ("All seeds start from" not in page)


def made_by(planned, make_result):
    """A result of a planned run, as far as captions read it."""
    made = make_result("rope", "vanilla", planned.run.seed, 1.0, table=planned.run.table)
    made["metrics"] |= {"tried": {}, "replaced": [], "averaged": [], "words": 9, "length": 8}
    return {**made, "config": planned.config}


def test_the_caption_says_what_answering_nothing_scores(make_result):
    made = make_result("learned", "vanilla", 1, 1.0, table="bert_table4")
    made["data"] = {
        "request": {"v1": {"version": "1.1"}, "v2": {"version": "2.0"}},
        "splits": {"v2": {"valid": {"questions": 8, "answers": {"questions": 3}}}},
    }
    results = [{**made, "metrics": {"v2_f1": value}} for value in (62.5, 63.0)]
    (told,) = SQUAD.caption_notes(results)
    assert "62.50" in told and "1 of the 2 runs" in told


def test_rows_of_the_bert_paper_are_files_or_encodings(configs):
    assert len(BERT_SQUAD_TABLE.rows) == 13
    assert BERT_GLUE_TABLE.row_names == BERT_SQUAD_TABLE.row_names
    for name in BERT_SQUAD_TABLE.row_names:
        planned = plan_run(configs, Run("bert_table4", "mini", name, "vanilla", 1), Devices(0))
        given = planned.trainings[0].config["model"]["position_encoding"]
        assert given == (name if "only" not in name else f"none+{name[:-5]}")


def test_every_table_has_its_script():
    for name, table in TABLES.items():
        for script in (name, *(figure.name for figure in table.figures if figure.name)):
            text = (CONFIGS.parent / "scripts" / f"{script}.sh").read_text()
            assert f"-m fairseq_plugins table {script} " in text


@pytest.mark.parametrize(
    "table",
    first_of_each_kind(TABLES.values(), lambda table: table.experiment, lambda table: table.name),
)
def test_commands_compose_to_what_is_recorded(configs, table):
    """The recorded configuration is put together without Hydra for every attention and rate."""
    attention = [*table.attentions, *table.extra_attentions][-1]
    scale = "mini" if "mini" in experiment_of(table.name).scales else PUBLISHED
    run = Run(table.name, scale, "lrpe_type2", attention, 3)
    training = plan_run(configs, run, Devices(0)).measured[-1]
    composed = record(compose_recipe(configs, training.variant.recipe, training.overrides))
    training.config.pop("start", None)
    for section, option in (("checkpoint", "finetune_from_model"), ("model", "init_from")):
        if f"{section}.{option}=" in " ".join(training.overrides):
            del composed[section][option], training.config[section][option]
    assert composed == training.config


def test_linear_attention_is_the_encoders_unless_both_are_asked_for(configs):
    """And so is the encoding, as in the paper."""
    decoders = {
        "vanilla": ("vanilla", "lrpe_type2"),
        "linear": ("vanilla", "base"),
        "linear_both": ("linear", "lrpe_type2"),
    }
    for word, decoder in decoders.items():
        run = Run("table4", "mini", "lrpe_type2", word, 1)
        (training,) = plan_run(configs, run, Devices(0)).trainings
        model = training.config["model"]
        assert model["encoder_attention_type"] == word.removesuffix("_both")
        stacks = TRANSLATION.stacks(model)
        assert [stack.attention_type for stack in stacks][1] == decoder[0]
        assert [stack.position_encoding for stack in stacks] == ["lrpe_type2", decoder[1]]
        steps = TRANSLATION.steps(training, training.folder / "checkpoint_last.pt", run, 0)
        decoded = ["fairseq-generate", "python"] * 2
        assert [step.command[0] for step in steps] == ["fairseq-validate", *decoded]
        for step in steps[:2]:
            of_batches = step.command.index("--required-batch-size-multiple")
            assert step.command[of_batches + 1] == "1"
