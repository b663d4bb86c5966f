"""The runner of a table, with stand-ins for fairseq's commands: what is run, skipped, resumed."""

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common import files
from fairseq_plugins.common.root import FOLDER_VARIABLES
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_5
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe_files import read_content, write_result
from fairseq_plugins.records.results import Result, ResultSchema
from fairseq_plugins.report.page import Report
from fairseq_plugins.runner import (
    checkpoints,
    journal,
    preflight,
    run_state,
    table_runner,
)
from fairseq_plugins.runner import status as run_status
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.run_state import is_being_replaced
from tests.tables.fake_fairseq import TOTAL, FakeFairseq, run_table

TOY = LANGUAGE_MODEL.scales["toy"]


def read(path: Path) -> Result | None:
    return results.read_result(path, LANGUAGE_MODEL.metrics)


@pytest.fixture(scope="module")
def planned(configs):
    """base, rope and lrpe_type2 of Table 2 under linear attention."""
    runs, _ = plan(
        configs, TABLE_2, TOY, Devices(0),
        rows=["base", "rope", "lrpe_type2"], attentions=["linear"], seeds=[1],
    )  # fmt: skip
    return runs


def work(root, planned, fake, *, force=False):
    return run_table(root, planned, RunOptions(force=force), launcher=fake)


def folder_of(root, one):
    return root / one.run.folder


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = content.find(b"\0" * 400) + 200  # in the tensor of zeros
    content[middle] ^= 1
    path.write_bytes(bytes(content))


def test_every_run_gets_a_result_and_the_page_is_rendered(root, planned, capsys):
    fake = FakeFairseq(root)
    assert work(root, planned, fake) == 0
    assert fake.trained == [(one.run.name, 0) for one in planned]
    for one in planned:
        result = read(root / one.run.result)
        assert [*result] == [
            key for key in ResultSchema.model_fields if key not in ("signature", "study", "earlier")
        ]
        assert set(result["metrics"]) == set(LANGUAGE_MODEL.metrics.model_fields)
        assert result["metrics"]["valid_ppl"] == pytest.approx(90.5097)
        assert result["metrics"]["updates"] == TOTAL
        assert result["metrics"]["parameters"] == 12345
        assert result["command"][0].startswith("fairseq-hydra-train --config-dir configs")
        assert result["command"][2].startswith("fairseq-eval-lm data/toy")
        assert set(result["versions"]) == {"python", "torch", "fairseq", "hydra-core", "numpy"}
        assert "unknown" not in result["versions"].values()
        assert result["finished_at"].endswith("+00:00")
        assert result["data"]["dictionary_size"] == 7
        assert result["data"]["from"] == "y"  # an absolute path is reduced to its name
        assert str(root) not in json.dumps(result)
    page = (root / "results/table2/toy.md").read_text()
    assert page.count("90.51 (1)") == 6
    output = capsys.readouterr().out
    assert "rope-linear-s1: done, PPL (valid) 90.51, PPL (test) 90.51" in output
    assert "results/table2/toy.md" in output


def test_a_result_of_changed_code_is_skipped_with_a_word(root, planned, capsys):
    work(root, planned[:1], FakeFairseq(root))
    path = root / planned[0].run.result
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "commit": "0" * 40 + "-dirty", "sources": "0" * 16}))
    capsys.readouterr()
    assert work(root, planned[:1], FakeFairseq(root)) == 0
    assert "made by other code, --force trains it again" in capsys.readouterr().out


def test_done_rows_are_skipped_unless_forced(root, planned, capsys):
    work(root, planned, FakeFairseq(root))
    again = FakeFairseq(root)
    assert work(root, planned, again) == 0
    assert again.trained == again.evaluated == []
    assert "rope-linear-s1: skipped" in capsys.readouterr().out
    forced = FakeFairseq(root)
    assert work(root, planned[:1], forced, force=True) == 0
    assert forced.trained == [("base-linear-s1", 0)]


def test_the_page_is_written_once_for_all_runs_that_ended_meanwhile(root, planned, monkeypatch):
    """Else a thousand done runs take an hour, since each page reads all results."""
    assert work(root, planned, FakeFairseq(root)) == 0
    pages = []

    def write(report: Report) -> None:
        pages.append(report)
        time.sleep(1.0)

    monkeypatch.setattr(Report, "write", write)
    assert work(root, planned, FakeFairseq(root)) == 0
    assert 0 < len(pages) < len(planned)


@pytest.mark.parametrize("unclean", [False, True])
def test_who_trains_from_a_changed_tree_is_told_first(root, planned, capsys, unclean):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    if unclean:
        (root / "new.py").write_text("")
    (root / ".git" / "info" / "exclude").write_text("checkpoints\n")
    work(root, planned[:1], FakeFairseq(root))
    said = capsys.readouterr().out
    assert ("(new or changed: new.py)" in said) == unclean
    assert read(root / planned[0].run.result)["commit"].endswith("-dirty") == unclean


def test_an_incomplete_result_is_made_again(root, planned, capsys):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    path = root / one.run.result
    path.write_text(path.read_text()[:100])
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert "is not a complete result" in capsys.readouterr().out
    assert fake.trained == []  # its checkpoints are complete: only the evaluation is missing
    assert len(fake.evaluated) == 2
    assert read(path)


@pytest.mark.parametrize("more", [{"remark": "fine"}, {"schema": 3}])
def test_a_result_of_a_newer_version_is_named_and_kept(root, planned, capsys, more):
    """Even where no checkpoint is left, as in a new clone, so that it would be trained again."""
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    path = root / one.run.result
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    content = path.read_bytes()
    shutil.rmtree(folder_of(root, one))
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 1
    assert fake.trained == [] and path.read_bytes() == content
    output = capsys.readouterr().out
    assert f"{one.run.result} was written by a newer version ({next(iter(more))}" in output
    assert work(root, [one], fake, force=True) == 0
    assert fake.trained == [(one.run.name, 0)] and read(path)


def make_by_another_experiment(root, one):
    """The result of a run, as if it had been of 100 updates."""
    work(root, [one], FakeFairseq(root))
    path = root / one.run.result
    result = read_content(path)
    result["config"]["optimization"]["max_update"] = 100
    path.write_text(json.dumps(result))
    return path


def test_a_result_of_another_experiment_is_named_and_kept(root, planned, capsys):
    one = planned[1]
    make_by_another_experiment(root, one)
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 1
    assert fake.trained == []
    output = capsys.readouterr().out
    assert f"{one.run.result} was made by another experiment" in output
    assert "optimization.max_update: 100 -> 250" in output
    assert "--force" in output
    assert work(root, [one], fake, force=True) == 0
    assert fake.trained == [(one.run.name, 0)]


def test_an_interrupted_run_resumes_and_its_time_adds_up(root, planned, capsys):
    one = planned[0]
    assert work(root, [one], FakeFairseq(root, stop_at=100)) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().out
    assert not (root / one.run.result).exists()
    notes = folder_of(root, one) / "run.json"
    content = json.loads(notes.read_text())
    content["train_seconds"] += 1000
    content["wall_seconds"] += 1000
    notes.write_text(json.dumps(content))
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 100)]
    result = read(root / one.run.result)
    assert result["metrics"]["train_seconds"] >= 1000
    assert result["wall_seconds"] >= 1000
    assert "resumed at 100" in capsys.readouterr().out


def test_a_run_of_another_configuration_is_not_resumed(root, planned, capsys):
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=100))
    notes = folder_of(root, one) / "run.json"
    content = json.loads(notes.read_text())
    content["config"]["optimization"]["lr"] = [0.5]
    notes.write_text(json.dumps(content))
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 0)]
    output = capsys.readouterr().out
    assert "optimization.lr: [0.5] -> [0.002]" in output
    assert f"{one.run.name}.previous" in output
    assert (folder_of(root, one).with_name(f"{one.run.name}.previous") / "run.json").exists()


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_last_checkpoint_is_said_and_the_one_before_is_used(
    root, planned, capsys, damage
):
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=150))
    folder = folder_of(root, one)
    damage(folder / "checkpoint_last.pt")
    truncate(folder / "checkpoint_1_150.pt")
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 100)]
    output = capsys.readouterr().out
    assert "checkpoint_last.pt is damaged" in output
    assert "checkpoint_1_150.pt is damaged" in output
    assert "going on from checkpoint_1_100.pt (100 updates)" in output
    assert (folder / "checkpoint_last.pt.corrupt").exists()


def test_intact_checkpoints_are_kept_where_memory_is_short(root, planned, capsys, monkeypatch):
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=150))
    with monkeypatch.context() as short:
        short.setattr(torch, "load", Mock(side_effect=MemoryError))
        assert work(root, [one], FakeFairseq(root)) == 1
    output = capsys.readouterr().out
    assert "Cannot allocate memory" in output and "checkpoint_best.pt" in output
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 150)]


@pytest.mark.parametrize("name", ["run.json", "base-linear-s1.json"])
def test_what_cannot_be_read_now_is_neither_set_aside_nor_replaced(
    root, planned, capsys, monkeypatch, name
):
    """As files of a colleague with umask 077, or of a server that is away for a moment."""
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=None if name.startswith("base") else 150))
    for checkpoint in folder_of(root, one).glob("*.pt") if name.startswith("base") else ():
        checkpoint.unlink()
    before = {path: path.read_bytes() for path in root.glob("[cr]*/table2/**/*.json")}
    with monkeypatch.context() as unreadable:
        for method in ("read_text", "read_bytes"):
            refuse_reading(unreadable, method, name)
        fake = FakeFairseq(root)
        assert work(root, [one], fake) == 1
    output = capsys.readouterr().out
    assert f"FAILED {one.run.name}: [Errno {errno.EACCES}] Permission denied" in output
    assert name in output and fake.trained == []
    assert all(path.read_bytes() == content for path, content in before.items())
    assert work(root, [one], fake) == 0
    assert fake.trained == ([(one.run.name, 150)] if name == "run.json" else [])


def refuse_reading(monkeypatch: pytest.MonkeyPatch, method: str, name: str) -> None:
    read_it = getattr(Path, method)

    def read_or_refuse(path: Path, *options: object, **named: object) -> object:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read_it(path, *options, **named)

    monkeypatch.setattr(Path, method, read_or_refuse)


def test_without_an_intact_checkpoint_training_starts_anew(root, planned, capsys):
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=50))
    for path in folder_of(root, one).glob("*.pt"):
        truncate(path)
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 0)]
    assert "no intact checkpoint is left: training starts anew" in capsys.readouterr().out


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_an_ended_training_without_its_best_checkpoint_is_not_measured_at_its_last(
    root, planned, capsys, damage
):
    one = planned[1]
    work(root, [one], FakeFairseq(root, stop_at=TOTAL))
    damage(folder_of(root, one) / "checkpoint_best.pt")
    fake = FakeFairseq(root)
    again = "scripts/table2.sh --scale toy --rows rope --attention linear --seeds 1 --force"
    for _ in range(2):
        capsys.readouterr()
        assert work(root, [one], fake) == 1
        output = capsys.readouterr().out
        assert f"checkpoint_best.pt is missing; {again} trains it again" in output
    assert fake.trained == fake.evaluated == []
    assert not (root / one.run.result).exists()
    assert work(root, [one], fake, force=True) == 0
    assert fake.trained == [(one.run.name, 0)]


def test_a_training_without_its_best_checkpoint_goes_on_and_writes_it(root, planned):
    one = planned[0]
    work(root, [one], FakeFairseq(root, stop_at=200))
    truncate(folder_of(root, one) / "checkpoint_best.pt")
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 200)]
    assert fake.evaluated == [f"{one.run.folder}/checkpoint_best.pt"] * 2


def test_the_intact_checkpoint_of_the_final_update_is_used(root, planned, capsys):
    one = planned[0]
    folder = folder_of(root, one)
    work(root, [one], FakeFairseq(root, stop_at=TOTAL))
    truncate(folder / "checkpoint_last.pt")
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == []
    assert fake.evaluated == [f"{one.run.folder}/checkpoint_best.pt"] * 2
    assert checkpoints.has_reached(folder, TOTAL)
    assert "going on from checkpoint_1_250.pt (250 updates)" in capsys.readouterr().out


def test_the_recipe_says_which_checkpoint_is_evaluated(planned):
    one = planned[0]
    (training,) = one.trainings
    assert training.evaluated == "checkpoint_best.pt"
    dataset = {**training.config["dataset"], "disable_validation": True}
    other = replace(training, config={**training.config, "dataset": dataset})
    assert other.evaluated == "checkpoint_last.pt"
    commands = replace(one, trainings=(other,)).commands()
    assert all(f"{one.run.folder}/checkpoint_last.pt" in c for c in commands[1:])


def test_a_disk_that_is_full_for_a_moment_ends_no_training(root, planned, monkeypatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    class FullMeanwhile(FakeFairseq):
        def _train(self, *arguments):
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr(journal, "JOURNAL_SECONDS", 0.0)
                meanwhile.setattr(journal, "write_json", full)
                return super()._train(*arguments)

    assert work(root, planned[:1], FullMeanwhile(root)) == 0
    assert full.called and (root / planned[0].run.result).is_file()


def test_a_failing_row_is_named_and_does_not_stop_the_others(root, planned, capsys):
    fake = FakeFairseq(root, failing=["rope"])
    assert work(root, planned, fake) == 1
    assert read(root / planned[0].run.result)
    assert read(root / planned[2].run.result)
    assert not (root / planned[1].run.result).exists()
    end = capsys.readouterr().out.split("The whole table")[1]
    assert "FAILED rope-linear-s1: training ended with status 1" in end
    assert "log: checkpoints/table2/toy/rope-linear-s1/train.log" in end
    assert "| RuntimeError: out of memory" in end


@pytest.mark.parametrize("status", [-9, 137])  # of a fork, and of srun
def test_a_killed_training_may_have_lacked_memory(root, planned, capsys, status):
    assert work(root, planned[:1], lambda *_: status) == 1
    expected = f"training ended with status {status}, perhaps killed for lack of memory"
    assert f"FAILED base-linear-s1: {expected}" in capsys.readouterr().out


def test_a_failing_row_is_named_with_a_log_outside_the_repository(
    root, configs, monkeypatch, tmp_path_factory, capsys
):
    elsewhere = tmp_path_factory.mktemp("checkpoints")
    monkeypatch.setenv(FOLDER_VARIABLES["checkpoints"], str(elsewhere))
    runs, _ = plan(
        configs, TABLE_2, TOY, Devices(0), rows=["rope"], attentions=["linear"], seeds=[1]
    )
    assert work(root, runs, FakeFairseq(root, failing=["rope"])) == 1
    said = capsys.readouterr().out
    assert "FAILED rope-linear-s1: training ended with status 1" in said
    assert f"log: {elsewhere}/table2/toy/rope-linear-s1/train.log" in said


def status_of(root, one):
    (found,) = (
        found
        for found in run_status.RunStatuses(root, [], {}).statuses()
        if found.name == one.run.name
    )
    return found


def test_status_tells_what_failed_until_it_is_made(root, planned):
    base, rope, _ = planned
    work(root, planned, FakeFairseq(root, failing=["rope"]))
    assert status_of(root, base).state == "done"
    failed = status_of(root, rope)
    assert (failed.state, failed.reason) == ("failed", "training ended with status 1")
    assert failed.log == f"{rope.run.folder}/train.log"
    assert failed.lines[-1] == "RuntimeError: out of memory"
    work(root, planned, FakeFairseq(root, stop_at=100))
    assert status_of(root, rope).state == "stopped"
    work(root, planned, FakeFairseq(root))
    assert status_of(root, rope).state == "done"


def test_an_old_result_is_not_the_end_of_a_forced_run_that_failed(root, planned):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    work(root, [one], FakeFairseq(root, failing=["base"]), force=True)
    assert read(root / one.run.result), "nothing is lost"
    assert status_of(root, one).state == "failed"
    work(root, [one], FakeFairseq(root, stop_at=100), force=True)
    assert status_of(root, one).state == "stopped"
    work(root, [one], FakeFairseq(root), force=True)
    assert status_of(root, one).state == "done"


class StopsIn(FakeFairseq):
    """Is stopped in the training of one row, after 100 updates."""

    def __init__(self, root, row):
        super().__init__(root)
        self.row = row

    def _train(self, overrides, log, on_lines):
        self.stop_at = 100 if overrides["model"] == self.row else None
        return super()._train(overrides, log, on_lines)


def test_an_interrupted_forced_call_goes_on_without_force(root, planned, capsys):
    base, rope, lrpe = planned
    work(root, planned, FakeFairseq(root))
    before = {one.run: (root / one.run.result).read_text() for one in planned}
    assert work(root, planned, StopsIn(root, "rope"), force=True) == 130
    assert (
        "Stopped. The same command without --force goes on from the last checkpoint. Not begun, "
        f"and to be named with --force again: {lrpe.run.name}.\n"
    ) in capsys.readouterr().out
    assert (root / rope.run.result).read_text() == before[rope.run], "it stays until the new one"
    assert status_of(root, rope).state == "stopped"
    assert [run_state.is_recorded(root, one) for one in planned] == [True, False, True]
    fake = FakeFairseq(root)
    assert work(root, planned, fake) == 0
    assert fake.trained == [(rope.run.name, 100)]
    assert (root / rope.run.result).read_text() != before[rope.run]
    assert work(root, planned, fake) == 0
    assert len(fake.trained) == 1
    assert (root / base.run.result).read_text() != before[base.run]


def test_a_forced_run_goes_on_where_the_clock_was_set_back(root, planned):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    later = time.time() + 3600
    os.utime(root / one.run.result, (later, later))
    assert work(root, [one], FakeFairseq(root, stop_at=100), force=True) == 130
    assert status_of(root, one).state == "stopped"
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 100)]
    assert status_of(root, one).state == "done"


def test_a_forced_run_that_failed_is_tried_again_without_force(root, planned):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    before = (root / one.run.result).read_text()
    work(root, [one], FakeFairseq(root, failing=["base"]), force=True)
    failing_again = FakeFairseq(root, failing=["base"])
    assert work(root, [one], failing_again) == 1
    assert failing_again.trained == [(one.run.name, 0)]
    assert work(root, [one], FakeFairseq(root)) == 0
    assert (root / one.run.result).read_text() != before
    assert status_of(root, one).state == "done"


def test_a_forced_run_that_was_cut_off_takes_no_other_tables_result(root, configs, planned):
    words = {"rows": ["lrpe_type2"], "attentions": ["linear"], "seeds": [1]}
    (five,), _ = plan(configs, TABLE_5, TOY, Devices(0), **words)
    work(root, planned[2:], FakeFairseq(root))
    work(root, [five], FakeFairseq(root, stop_at=100), force=True)
    fake = FakeFairseq(root)
    assert work(root, [five], fake) == 0
    assert fake.trained == [(five.run.name, 100)]


def test_a_forced_run_of_another_experiment_goes_on_without_force(root, planned):
    one = planned[1]
    path = make_by_another_experiment(root, one)
    assert work(root, [one], FakeFairseq(root, stop_at=100), force=True) == 130
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert fake.trained == [(one.run.name, 100)]
    assert read(path)["config"] == one.config


class FullDisk(FakeFairseq):
    """After its first evaluation no file can be written below results/."""

    def __call__(self, command, log, on_lines, keep_open=()):
        status = super().__call__(command, log, on_lines, keep_open)
        if self.evaluated:
            shutil.rmtree(self.root / "results", ignore_errors=True)
            (self.root / "results").touch()
        return status


def test_results_that_cannot_be_written_are_kept_and_taken_by_the_next_call(root, planned, capsys):
    full = FullDisk(root)
    assert work(root, planned, full) == 1
    assert [name for name, _ in full.trained] == [one.run.name for one in planned]
    said = capsys.readouterr().out
    for one in planned:
        kept = one.run.folder / "result.json"
        assert f"FAILED {one.run.name}: {one.run.result} cannot be written" in said
        assert f"the result is in {kept}, and the same command moves it from there" in said
        assert (root / kept).is_file()
    assert "FAILED results/table2/toy.md" in said
    assert "cannot be written" in status_of(root, planned[0]).reason
    (root / "results").unlink()
    fake = FakeFairseq(root)
    assert work(root, planned, fake) == 0
    assert fake.trained == fake.evaluated == []
    for one in planned:
        assert read(root / one.run.result)
        assert not (root / one.run.folder / "result.json").exists()
        assert status_of(root, one).state == "done"


def test_a_kept_result_that_another_process_takes_first_is_taken(root, planned, monkeypatch):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    kept = root / one.run.folder / "result.json"
    result = read(root / one.run.result)
    (root / one.run.result).unlink()
    files.write_json(kept, result)

    def write(path, value):
        write_result(path, value)
        kept.unlink(missing_ok=True)

    monkeypatch.setattr(table_runner, "write_result", write)
    assert work(root, [one], FakeFairseq(root)) == 0
    assert read(root / one.run.result)


def test_a_kept_result_of_another_experiment_is_not_taken(root, planned):
    one = planned[0]
    work(root, [one], FakeFairseq(root))
    result = read_content(root / one.run.result)
    (root / one.run.result).unlink()
    result["config"]["optimization"]["max_update"] = 100
    (root / one.run.folder / "result.json").write_text(json.dumps(result))
    fake = FakeFairseq(root)
    assert work(root, [one], fake) == 0
    assert len(fake.evaluated) == 2
    assert read(root / one.run.result)["config"] == one.config


@pytest.mark.parametrize("name", ["results", "checkpoints"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(root, planned, name):
    (root / name).touch()
    with pytest.raises(ValueError, match=rf"^{name}/table2/toy cannot be written to \("):
        preflight.check_ready(root, planned)


def test_a_full_disk_is_refused_before_anything_starts(root, planned):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # small files can be written still
    try:
        with pytest.raises(ValueError, match=r"table2/toy cannot be written to \("):
            preflight.check_ready(root, planned)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    preflight.check_ready(root, planned)
    assert not list((root / "results/table2/toy").iterdir())


def test_a_run_that_another_process_holds_is_left_to_it(root, planned, capsys):
    one = planned[0]
    with checkpoints.exclusive(folder_of(root, one)):
        assert work(root, [one], FakeFairseq(root)) == 1
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    assert f"{holder} already holds this run" in capsys.readouterr().out
    assert work(root, [one], FakeFairseq(root)) == 0


def test_table_5_takes_the_rows_that_table_2_has(root, configs, planned, capsys):
    work(root, planned[2:], FakeFairseq(root))
    (five,), _ = plan(
        configs, TABLE_5, TOY, Devices(0),
        rows=["lrpe_type2"], attentions=["linear"], seeds=[1],
    )  # fmt: skip
    fake = FakeFairseq(root)
    assert work(root, [five], fake) == 0
    assert fake.trained == fake.evaluated == []
    assert "from table2" in capsys.readouterr().out
    assert read(root / five.run.result)["table"] == "table5"


def test_an_interrupted_forced_run_is_not_the_source_of_its_own_result(root, planned):
    """Its stage `take` comes after another table's job, which may have failed."""
    one = planned[2]
    work(root, [one], FakeFairseq(root))
    work(root, [one], FakeFairseq(root, stop_at=100), force=True)
    fake = FakeFairseq(root)
    assert run_table(root, [one], RunOptions(stage="take"), launcher=fake) == 1
    assert fake.trained == fake.evaluated == []
    assert is_being_replaced(root, one)


def test_table_5_does_not_train_what_a_newer_version_made_for_table_2(
    root, configs, planned, capsys
):
    two = planned[2]
    work(root, [two], FakeFairseq(root))
    path = root / two.run.result
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 3}))
    five = plan_run(configs, replace(two.run, table="table5"), Devices(0))
    fake = FakeFairseq(root)
    assert work(root, [five], fake) == 1
    assert f"{two.run.result} was written by a newer version" in capsys.readouterr().out
    assert fake.trained == [] and not (root / five.run.result).exists()
    assert work(root, [five], fake, force=True) == 0
    assert fake.trained == [(five.run.name, 0)]


def test_missing_data_is_refused_before_anything_starts(root, capsys):
    (root / "data/toy/dict.txt").unlink()
    with pytest.raises(SystemExit) as stopped:
        main(["table2", "--scale", "toy", "--rows", "rope", "--attention", "linear"], root)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "data/toy lacks dict.txt" in error
    assert "scripts/prepare_toy.sh" in error
    assert not (root / "checkpoints").exists()


def test_a_scale_for_gpus_is_refused_where_there_are_none(root, planned, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    one = replace(planned[0], devices=Devices(8))
    with pytest.raises(ValueError, match=r"`--gpus` must be at most the 0 .* toy and mini train"):
        preflight.check_ready(root, [one])
    with pytest.raises(ValueError, match=r"`--gpus` must be at most the 0 .* toy and mini train"):
        preflight.check_gpus(8, 1, 0)  # runs of one GPU share those there are, here none


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"position_encoding": "alibi"},
            "it has `alibi` under linear attention, this run asks for `rope`; scripts/table2.sh",
        ),
        ({"_name": "fconv_lm"}, "must be a pe_transformer_lm, but is a fconv_lm"),
    ],
)
def test_a_finished_run_of_another_model_is_not_evaluated(root, planned, options, message, capsys):
    """Training, which would refuse it, is not started again."""
    (rope,) = [one for one in planned if one.run.row == "rope"]
    folder, model = folder_of(root, rope), rope.trainings[0].config["model"]
    work(root, [rope], FakeFairseq(root, stop_at=TOTAL))
    for changed, status in ((options, 1), ({}, 0)):
        cfg = {"model": {**model, **changed}, "task": rope.trainings[0].config["task"]}
        state = {"model": {}, "optimizer_history": [{"num_updates": TOTAL}], "cfg": cfg}
        for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
            torch.save(state, folder / name)
        fake = FakeFairseq(root)
        assert work(root, [rope], fake) == status
        assert (message in capsys.readouterr().out) == bool(changed)
        assert bool(fake.evaluated) == (status == 0) and not fake.trained
