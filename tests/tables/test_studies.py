"""Tables on one's own data, budget and settings, and results that came with the repository."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fairseq_plugins.cli import results as results_command
from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.root import FOLDER_VARIABLES, ROOT, configs_folder
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.experiments.training import PretrainedModel, default_checkpoint
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_3
from fairseq_plugins.papers.tables import of_study
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe import hydra_word
from fairseq_plugins.records.runs import Run, Study
from fairseq_plugins.records.tidy import read_tidy
from fairseq_plugins.report.differences import differences
from fairseq_plugins.report.lines import lines_of
from fairseq_plugins.report.render import main_tables
from fairseq_plugins.runner.plan import check_study, plan, tracked
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import describe_published, split_published
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.judged import JudgedTable
from tests.tables.fake_fairseq import FakeFairseq, run_table

TOY = LANGUAGE_MODEL.scales["toy"]
STUDY = Study("mine", ("lr_scheduler.warmup_updates=20",))


def planned(configs: Path, study: Study | None = STUDY):
    runs, _ = plan(
        configs, TABLE_2, TOY, Devices(0),
        rows=["base", "rope"], attentions=["linear"], seeds=[1], study=study,
    )  # fmt: skip
    return runs


def work(root: Path, runs):
    return run_table(root, runs, RunOptions(), launcher=FakeFairseq(root))


def test_a_study_has_its_own_folder_and_says_what_differs(root, configs, capsys):
    assert work(root, planned(configs)) == 0
    folder = root / "results" / "table2"
    files = ["mine", *(f"mine.{kind}" for kind in ("json", "md", "png", "svg"))]
    assert sorted(path.name for path in folder.iterdir()) == files
    result = json.loads((folder / "mine" / "rope-linear-s1.json").read_text())
    assert result["study"] == {**STUDY.record(), "overrides": [*STUDY.overrides]}
    assert results.run_of(result) == Run("table2", "toy", "rope", "linear", 1, STUDY)
    assert "lr_scheduler.warmup_updates=20" in result["command"][0]
    page = (folder / "mine.md").read_text()
    assert "study `mine`, from scale `toy`" in page
    assert "- `lr_scheduler.warmup_updates: 50 -> 20`" in page
    assert page.count("-> ") == 1
    assert "33.74" not in page, "the paper's numbers are of other data"
    assert "study mine" in capsys.readouterr().out


def test_without_base_the_first_row_is_the_reference_and_all_are_in_one_table():
    own = of_study(TABLE_2, {"rope", "alibi", "lrpe_type2"})
    assert own.reference == "rope" and own.row_names == ("rope", "lrpe_type2", "alibi")
    assert not own.is_printed
    found = [
        {"row": row, "attention": "linear", "seed": seed, "metrics": {"test_ppl": ppl + seed / 9}}
        for row, ppl in (("rope", 60.0), ("lrpe_type2", 58.0), ("alibi", 63.0))
        for seed in (1, 2, 3)
    ]
    judged = JudgedTable(own, gather(found, own.columns))
    assert [*judged.against("linear")] == ["lrpe_type2", "alibi"]
    page = main_tables(judged, lines_of(judged))[0]
    assert [section.heading for section in differences(judged)] == ["Differences from `rope`"]
    assert page.index("`rope`") < page.index("`lrpe_type2`") < page.index("`alibi`")
    with_base = of_study(TABLE_2, {"alibi", "base", "rope"})
    assert with_base.reference == "base" and with_base.row_names == ("base", "rope", "alibi")


def test_data_of_ones_own_is_trained_and_measured_on(root, configs, tmp_path_factory):
    own = tmp_path_factory.mktemp("corpora") / "my text"
    (root / "data" / "toy").rename(own)
    (one, _) = planned(configs, Study("mine", (), own))
    assert one.missing_data(root) == []
    train, evaluate, _ = one.commands()
    assert f"task.data='{own}'" in train and evaluate[1] == str(own)
    assert one.config["task"]["data"] == "my text"
    assert work(root, [one]) == 0
    text = (root / one.run.result).read_text()
    assert str(own.parent) not in text and '"data": "my text"' in text
    assert "- data: `my text`" in (root / "results" / "table2" / "mine.md").read_text()


def test_languages_are_those_of_the_data_unless_set(root, capsys):
    data = root / "data" / "pairs"
    data.mkdir()
    words = ["table4", "--data", str(data), "--rows", "rope", "--attention", "vanilla", "--dry-run"]

    def languages(source: str, target: str, *more: str) -> list[str]:
        record = {"request": {"source": source, "target": target}}
        (data / "data.json").write_text(json.dumps(record))
        assert main([*words, *more], root) == 0
        return re.findall(r"task\.\w+_lang=(\w+)", capsys.readouterr().out)

    assert languages("fr", "it") == ["fr", "it"]
    assert languages("en", "de") == [], "the recipe's own"
    assert languages("en", "de", "--scale", "toy") == ["en", "de"]
    assert languages("de", "it", "--set", "task.source_lang=fr") == ["fr", "it"]
    (data / "data.json").write_text('{"request": {"corpus": "text"}}')
    with pytest.raises(SystemExit):
        main(words, root)
    assert "prepare mt` makes, but" in capsys.readouterr().err


def test_the_same_name_with_other_settings_is_refused(root, configs, capsys):
    work(root, planned(configs)[:1])
    assert work(root, planned(configs, Study("mine", ("lr_scheduler.warmup_updates=30",)))[:1]) == 1
    assert "lr_scheduler.warmup_updates: 20 -> 30" in capsys.readouterr().out
    more = (*STUDY.overrides, "dataset.max_tokens=500")  # of which the recipe has none
    assert work(root, planned(configs, Study("mine", more))[:1]) == 1
    said = capsys.readouterr().out
    assert "dataset.max_tokens: None -> 500" in said and "another --name keeps it" in said
    sizes = ("decoder_layers=3", "dropout=0.3", "attention_dropout=0.2", "activation_dropout=0.1")
    more = (*STUDY.overrides, *(f"model.{size}" for size in sizes))
    assert work(root, planned(configs, Study("mine", more))[:1]) == 1
    said = capsys.readouterr().out
    assert all(f"model.{key}: " in said for key in (size.partition("=")[0] for size in sizes))


def test_what_was_refused_leaves_the_page_as_it_is(root, configs):
    work(root, planned(configs)[:1])
    page = root / "results" / "table2" / "mine.md"
    before = page.read_text()
    assert work(root, planned(configs, Study("mine", ("lr_scheduler.warmup_updates=30",)))[:1]) == 1
    assert page.read_text() == before


def test_without_a_result_no_page_is_written(root, configs, capsys):
    broken = FakeFairseq(root, failing=["base"])
    one = planned(configs)[:1]
    assert run_table(root, one, RunOptions(), launcher=broken) == 1
    said = refusal(capsys, ["table2", "--name", "nosuch", "--render"], root)
    assert (
        "`--name` must be that of a study with results, but results/table2/nosuch has none" in said
    )
    assert not [*(root / "results").rglob("*.md")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "model.decoder_layrs=3"], "decoder_layrs"),
        (["--set", "optimization.max_updat=3"], "max_updat"),
        (["--set", "model.decoder_layers=many"], "`model.decoder_layers`: Value 'many' of type"),
        (["--set", "model.decoder_attention_heads=3"], "3 attention heads share, but it is 64"),
        (["--set", "model.decoder_attention_heads=0"], "`decoder_attention_heads` must be from 1"),
        (["--set", "dataset.batch_size=0"], "`dataset.batch_size` must be at least 1, but is 0"),
        (["--set", "optimization.update_freq=[]"], "must be one number of at least 1, the same"),
        (["--set", "optimization.update_freq=[1,4]"], "but is [1, 4] instead"),
        (["--set", "optimization.max_update=0"], "must leave optimization.max_update or max_epoch"),
        (["--set", "optimization.max_update=-5"], "`optimization.max_update` must be from 0"),
        (["--set", "common.seed=3"], "must leave common.seed to the table"),
        (["--set", "model.attention_type=linear"], "must leave model.attention_type"),
        (["--set", "+model.encoder_position_encoding=alibi"], "must leave model.encoder_position"),
        (["--set", "+model=rope"], "must leave model to the table"),
        (["--set", "decoder_layers"], "must be like key=value"),
        (["--set", "common={seed:7}"], "must leave common to the table"),
        (["--set", "+checkpoint={save_dir:x}"], "must leave checkpoint to the table"),
        (["--set", "checkpoint.finetune_from_model=a.pt"], "must leave checkpoint.finetune_from"),
        (["--set", "checkpoint.restore_file=a.pt"], "must leave checkpoint.restore_file"),
        (["--set", "model.init_from='/a.pt'"], "must give model.init_from a path relative to the"),
        (["--updates", "0"], "`--updates` must be at least 1"),
        (
            ["--updates", "5", "--set", "++optimization.max_update=9"],
            "must set optimization.max_update once, but do so 2 times",
        ),
        (["--set", "model.dropout=0", "--set", "model.dropout=1"], "must set model.dropout once"),
        (["--set", "model.decoder_layers=0"], "`decoder_layers` must be from 1"),
        (["--set", "+foo=1"], "distributed_training, or a folder of configs, but names 'foo'"),
        (["--set", "+model.encoder_layers=1"], "`model.encoder_layers`: Key 'encoder_layers' not"),
        (["--set", "+dataset.foo=1"], "row 'rope': `dataset.foo`: Key 'foo' not in"),
        (["--set", "model.decoder_layers=1.5"], "`model.decoder_layers`: Value '1.5' of type"),
        (["--set", "model.activation_fn=foo"], "'foo', expected one of [relu, "),
        (["--set", "criterion._name=x"], "`criterion._name` must be a name that fairseq knows"),
        (["--set", "common.fp16=true"], "`common.fp16` must be off on a CPU"),
        (["--set", "model.dropout=2"], "`dropout` must be from 0 to 1, but is 2.0 instead"),
        (["--set", "optimization.lr=[]"], "`optimization.lr` must be one number or more"),
        (["--set", "optimization.lr=[-1]"], "`optimization.lr` must be at least 0 and finite"),
        (["--name", "mini"], "no scale"),
        (["--name", "mini.md"], "no scale"),
        (["--name", "../x"], "must be a word"),
        (
            ["--data", "/no/such/folder"],
            "`--data` must be an existing folder, but is /no/such/folder",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(root, capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        main(["table2", "--scale", "toy", "--rows", "rope", *words], root)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error and error.startswith("fairseq-pe table table2: error: ")
    assert not (root / "checkpoints").exists()


@pytest.mark.parametrize("content", ['{"request": {"cor', "[]", "null"])
@pytest.mark.parametrize("more", [["--render"], []])
def test_data_whose_description_is_damaged_is_refused_by_name(root, configs, capsys, content, more):
    work(root, planned(configs, None)[:1])
    (root / "data" / "toy" / "data.json").write_text(content)
    with pytest.raises(SystemExit) as stopped:
        main(["table2", "--scale", "toy", "--rows", "rope", *more], root)
    assert stopped.value.code == 2
    assert "data/toy/data.json is damaged: " in capsys.readouterr().err


def test_data_that_is_damaged_meanwhile_fails_its_runs(root, configs, capsys):
    runs = planned(configs, None)
    (root / "data" / "toy" / "data.json").write_text("")
    assert work(root, runs) == 1
    said = capsys.readouterr().out
    assert all(f"FAILED {one.run.name}: " in said for one in runs) and "json is damaged" in said


def test_tables_that_start_from_others_take_no_settings():
    check_study(TABLE_2)
    with pytest.raises(ValueError, match="table3 starts from another table's models"):
        check_study(TABLE_3)


def test_the_name_alone_goes_on_with_the_study_there_is(root, configs, capsys):
    work(root, planned(configs)[:1])
    words = ["table2", "--name", "mine", "--rows", "rope", "--attention", "linear", "--dry-run"]
    assert main(words, root) == 0
    said = capsys.readouterr().out
    assert "scale/lm=toy" in said and "lr_scheduler.warmup_updates=20" in said


def test_a_new_row_with_another_setting_is_refused(root, configs, capsys):
    work(root, planned(configs)[:1])
    words = ["table2", "--name", "mine", "--scale", "toy", "--rows", "rope", "--dry-run"]
    other, same = ["--updates", "9"], [w for o in STUDY.overrides for w in ("--set", o)]
    data = ["--data", str(STUDY.data)] if STUDY.data else []
    with pytest.raises(SystemExit) as stopped:
        main([*words, *other, *data], root)
    assert stopped.value.code == 2
    assert "must be those of study mine" in " ".join(capsys.readouterr().err.split())
    assert main([*words, *same, *data], root) == 0
    assert main([*words, *other, *data, "--force"], root) == 0


def test_settings_are_the_same_where_their_values_are(root, configs, capsys):
    work(root, planned(configs, Study("mine", ("optimization.lr=[1e-3]",)))[:1])
    words = ["table2", "--name", "mine", "--scale", "toy", "--rows", "rope", "--dry-run"]
    assert main([*words, "--set", "++optimization.lr=[0.001]"], root) == 0
    assert "differ" not in capsys.readouterr().err


def test_the_refusal_of_a_new_row_says_which_settings_differ(root, configs, capsys):
    work(root, planned(configs)[:1])
    words = ["table2", "--name", "mine", "--scale", "toy", "--rows", "rope"]
    with pytest.raises(SystemExit):
        main([*words, "--set", "lr_scheduler.warmup_updates=30", "--updates", "9"], root)
    said = " ".join(capsys.readouterr().err.split())
    assert "lr_scheduler.warmup_updates: 20 -> 30" in said
    assert "optimization.max_update: the recipe's -> 9" in said


def test_what_force_began_to_replace_is_resumed_without_it(root, configs, capsys):
    one = planned(configs)[0]
    work(root, [one])
    other = planned(configs, Study("mine", ("lr_scheduler.warmup_updates=30",)))[:1]
    fake = FakeFairseq(root, stop_at=100)
    run_table(root, other, RunOptions(force=True), launcher=fake)
    words = ["table2", "--name", "mine", "--scale", "toy", "--rows", "base", "--dry-run"]
    assert main([*words, "--set", "lr_scheduler.warmup_updates=30"], root) == 0


def test_lines_of_results_tell_the_settings_of_a_study(root, configs):
    work(root, planned(configs, Study("mine", ("optimization.lr=[0.1]", "model.dropout=0.2"))))
    known = [(TABLE_2, LANGUAGE_MODEL.metrics)]
    lines = [*read_tidy(root / "results", known, pytest.fail)]
    assert {one["settings"] for one in lines} == {"model.dropout=0.2 optimization.lr=[0.1]"}
    assert len(lines[0]["sources"]) == len(lines[0]["recipe"]) == 16


def test_cells_of_a_study_are_not_those_of_another_scale(root, configs, capsys, monkeypatch):
    work(root, planned(configs))
    monkeypatch.setattr(results_command, "ROOT", root)
    words = ["table2", "--study", "mine", "--format", "markdown"]
    assert results_command.main([*words, "--scale", "toy"]) == 0
    assert "| rope | 90.51" in capsys.readouterr().out
    assert results_command.main([*words, "--scale", "mini"]) == 2
    assert "must be those of a result, but are table2, mini and mine" in capsys.readouterr().err


@pytest.fixture
def own(root, tmp_path_factory) -> Path:
    """A folder of data outside the root."""
    folder = tmp_path_factory.mktemp("corpora") / "texts"
    shutil.copytree(root / "data" / "toy", folder)
    return folder


NAMED = ["table2", "--name", "mine", "--rows", "rope", "--attention", "linear", "--dry-run"]


def refusal(capsys, words, root) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(words, root)
    assert stopped.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_study_of_data_elsewhere_goes_on_by_its_name(root, configs, own, capsys):
    study = Study("mine", STUDY.overrides, own)
    work(root, planned(configs, study)[:1])
    shutil.copytree(own, root / own.name)  # has the same name, but is another one
    (root / own.name / "data.json").write_text('{"request": {"corpus": "another"}}')
    assert main(NAMED, root) == 0
    said = capsys.readouterr().out
    assert f"task.data={own}" in said and "lr_scheduler.warmup_updates=20" in said
    shutil.rmtree(root / "checkpoints")  # the results alone, as on another machine
    assert "`--data` must be given: study mine used a folder texts" in refusal(capsys, NAMED, root)
    moved = own.rename(own.with_name("moved"))
    assert main([*NAMED, "--data", str(moved)], root) == 0
    said = capsys.readouterr().out
    assert f"task.data={moved}" in said and "lr_scheduler.warmup_updates=20" in said
    assert main([*NAMED[:3], "--render"], root) == 0
    assert "90.51" in (root / "results" / "table2" / "mine.md").read_text()


@pytest.mark.parametrize("words", [[], ["--set", *STUDY.overrides]])
def test_other_data_under_a_name_is_refused(root, configs, own, capsys, words):
    work(root, planned(configs, Study("mine", STUDY.overrides, own))[:1])
    other = own.with_name("other")
    shutil.copytree(own, other)
    (other / "data.json").write_text('{"request": {"corpus": "another"}}')
    more = [*NAMED, *words]
    said = refusal(capsys, [*more, "--data", str(other)], root)
    assert f"data: texts -> {other}, which has other data" in said
    assert main([*more, "--data", str(own)], root) == 0
    assert main([*more, "--data", str(other), "--force"], root) == 0
    capsys.readouterr()
    shutil.copy(other / "data.json", own)
    assert "which has other data" in refusal(capsys, NAMED, root)


def test_own_data_for_a_study_of_the_recipes_is_refused(root, configs, own, capsys):
    work(root, planned(configs)[:1])
    said = refusal(capsys, [*NAMED, "--data", str(own)], root)
    assert f"data: the recipe's -> {own}" in said
    lacking = own.parent
    said = refusal(capsys, [*NAMED, "--data", str(lacking)], root)
    assert "`--data` must be a folder that `fairseq-pe prepare` makes" in said


def test_a_study_without_results_goes_on_by_its_name(root, configs, own, capsys):
    study = Study("mine", STUDY.overrides, own)
    fake = FakeFairseq(root, stop_at=100)
    run_table(root, planned(configs, study)[:1], RunOptions(), launcher=fake)
    assert not list((root / "results").rglob("*.json"))
    capsys.readouterr()
    assert main(NAMED, root) == 0
    said = capsys.readouterr().out
    assert "scale/lm=toy" in said and f"task.data={own}" in said
    assert "lr_scheduler.warmup_updates=20" in said


def test_a_job_is_given_all_of_a_study_that_is_known_by_its_name(root, configs, own, capsys):
    work(root, planned(configs, Study("mine", STUDY.overrides, own))[:1])
    assert main([*NAMED, "--slurm"], root) == 0
    said = capsys.readouterr().out
    assert f"--set {STUDY.overrides[0]} --name mine --data {own}" in said


def test_a_study_of_another_scale_is_refused(root, configs, capsys):
    work(root, planned(configs)[:1])
    words = ["table2", "--name", "mine", "--rows", "rope", "--dry-run"]
    assert main([*words, "--scale", "toy"], root) == 0
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--scale", "mini"], root)
    assert stopped.value.code == 2
    message = "`--scale` must be toy, the scale of study mine, but is mini"
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("kind", FOLDER_VARIABLES)
def test_the_environment_says_where_things_are(root, configs, monkeypatch, tmp_path_factory, kind):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if kind == "data":
        (root / "data" / "toy").rename(elsewhere / "toy")
    monkeypatch.setenv(FOLDER_VARIABLES[kind], str(elsewhere))
    one = planned(configs, None)[0]
    assert work(root, [one]) == 0
    assert any(elsewhere.iterdir())
    others = {"data", "checkpoints", "results"} - {kind}
    assert all(any((root / other).iterdir()) for other in others)
    assert not (root / kind).exists() or not any((root / kind).iterdir())
    assert str(elsewhere) not in (root / one.run.result).read_text()


def test_values_are_quoted_where_hydra_needs_it():
    assert hydra_word("data/toy-1.x") == "data/toy-1.x"
    assert hydra_word("a b's") == "'a b\\'s'"


@pytest.mark.parametrize(
    ("tracker", "option"),
    [
        ("tensorboard", "common.tensorboard_logdir=outputs/tensorboard/table2/mine/rope-linear-s1"),
        ("wandb", "common.wandb_project=table2-mine"),
    ],
)
def test_a_tracker_is_told_the_run_and_no_result(configs, tracker, option):
    one = planned(configs)[1]
    shown = tracked(one, tracker)
    assert option in shown.trainings[0].overrides
    assert shown.config == one.config
    assert shown.options[-2:] == ("--log", tracker)


@pytest.fixture
def published(root, configs):
    """A repository with the results of both rows in its history."""
    work(root, planned(configs, None))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "results"], ["commit", "-qm", "results"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    return root


def test_published_results_are_shown_and_not_made_again(published, configs, capsys):
    left, found = split_published(published, planned(configs, None))
    assert left == [] and [result["row"] for result in found] == ["base", "rope"]
    words = ["table2", "--scale", "toy", "--rows", "base,rope", "--attention", "linear"]
    assert main(words, published) == 0
    said = capsys.readouterr().out
    assert describe_published(found, 2) in said and "--rerun trains them here" in said
    assert "skipped" not in said and "90.51" in said


@pytest.mark.parametrize("weights", ["", "of another model"])
def test_results_of_a_start_that_is_not_here_are_published(weights):
    """This repository's own; those of another start are not."""
    scale = EXPERIMENTS["squad"].scales["published"]
    runs, _ = plan(
        configs_folder(ROOT),
        TABLES["bert_table4"],
        scale,
        Devices(1),
        rows=["none"],
        seeds=[1],
        start=PretrainedModel(default_checkpoint(), weights),
    )
    left, found = split_published(ROOT, runs)
    assert (len(left), len(found)) == ((1, 0) if weights else (0, 1))


def test_what_was_made_here_or_changed_is_not_published(published, configs):
    base, rope = planned(configs, None)
    path = published / base.run.result
    path.write_text(path.read_text().replace('"seed": 1', '"seed":  1'))
    left, _ = split_published(published, [base, rope])
    assert left == [base]


def test_what_force_has_begun_to_replace_is_not_published(published, configs):
    base, rope = planned(configs, None)
    fake = FakeFairseq(published, stop_at=100)
    run_table(published, [rope], RunOptions(force=True), launcher=fake)
    left, found = split_published(published, [base, rope])
    assert left == [rope] and [result["row"] for result in found] == ["base"]


def test_rerun_goes_to_a_folder_of_its_own(published, monkeypatch, capsys):
    for variable in FOLDER_VARIABLES.values():
        monkeypatch.setenv(variable, "")  # so that what the command sets is undone
    words = ["table2", "--scale", "toy", "--rows", "rope", "--attention", "linear", "--rerun"]
    assert main([*words, "--dry-run"], published) == 0
    assert "save_dir=checkpoints/local/table2/toy/rope-linear-s1" in capsys.readouterr().out


def test_rerun_leaves_checkpoints_where_they_were_put(published, monkeypatch, capsys):
    for variable in FOLDER_VARIABLES.values():
        monkeypatch.setenv(variable, "")
    words = ["table2", "--scale", "toy", "--rows", "rope", "--attention", "linear", "--rerun"]
    assert main([*words, "--checkpoints", "/disk/c", "--dry-run"], published) == 0
    assert "save_dir=/disk/c/local/table2/toy/rope-linear-s1" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--results", "/disk/r", "--dry-run"], published)
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "must be left out with `--rerun`, which writes to results/local, but are /disk/r" in said
