"""How runs are, from files that are made up, and what is printed of it."""

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fairseq_plugins.cli import status as command
from fairseq_plugins.common import locks
from fairseq_plugins.common.files import write_text
from fairseq_plugins.records.logs import PAGE_PREFIX
from fairseq_plugins.runner import slurm_queue
from fairseq_plugins.runner.journal import Journal
from fairseq_plugins.runner.slurm_queue import NoSlurm, Queued
from fairseq_plugins.runner.status import RunStatuses

PLACE = "checkpoints/table2/toy"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def line(updates, wall, loss=5.0):
    numbers = {"epoch": 1, "loss": str(loss), "wps": "9", "num_updates": str(updates)}
    return f"[train] {json.dumps({**numbers, 'wall': str(wall)})}\n"


def make(root, name, log):
    """A run's folder, cut off while its only training was trained."""
    return make_several(root, name, {"": log}, {"": 100})


def make_several(root, name, logs, updates):
    """Likewise of a run with several trainings, of which those with a log were begun.

    logs, updates: of each training, by its name.
    """
    folder = root / PLACE / name
    journal = Journal(folder, {}, {})
    journal.updates = updates
    journal.write()
    for age, (training, log) in enumerate(reversed(logs.items())):
        path = folder / training / "train.log"
        write_text(path, log)
        os.utime(path, (1e9 - age, 1e9 - age))
    return folder


def write_result(root, name, **other):
    """A result as far as `status` looks at it."""
    row, attention, seed = name.rsplit("-", 2)
    cell = {"table": "table2", "scale": "toy", "row": row, "attention": attention}
    tables = {key: {"x": 1.5} for key in ("metrics", "config", "data", "versions", "hardware")}
    path = root / "results" / "table2" / "toy" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**cell, "seed": int(seed[1:]), **tables, **other}))
    return path


def submit(root, name, number, after=(), log=None, runs=None):
    record = {"name": f"table2-toy-{name}", "number": number, "after": list(after)}
    (root / PLACE).mkdir(parents=True, exist_ok=True)
    runs = [["table2", "toy", run] for run in runs or [name]]
    slurm_queue.note_submission(root, root / PLACE, {**record, "runs": runs})
    if log is not None:
        (root / PLACE / f"table2-toy-{name}.slurm-{number}.log").write_text(log)


def submit_page(root, log=None, table="table2", name=f"table2-toy-{slurm_queue.RENDER}"):
    folder = root / "checkpoints" / table / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    slurm_queue.note_submission(root, folder, {"name": name, "number": 9, "runs": [], "after": []})
    if log is not None:
        (folder / f"{name}.slurm-9.log").write_text(log)


def states(root, *queue):
    """With these jobs in the queue; None where it is not known."""
    known = None if None in queue else {one.name: one for one in queue}
    return {
        one.name: one
        for one in RunStatuses(root, slurm_queue.read_submissions(root), known).statuses()
    }


def test_a_start_whose_checkpoint_was_not_made_explains_what_is_cancelled(tmp_path):
    """As in a new clone, whose results have no checkpoints."""
    os.utime(write_result(tmp_path, "base-linear-s1"), (1e9, 1e9))
    submit(tmp_path, "base-linear-s1", 1, log="error: no GPU\n")
    submit(tmp_path, "rope-linear-s1", 2, after=["table2-toy-base-linear-s1"])
    found = states(tmp_path)
    assert found["base-linear-s1"].state == "failed"
    assert found["base-linear-s1"].lines == ["error: no GPU"]
    assert found["rope-linear-s1"].reason == "after table2-toy-base-linear-s1"
    log = tmp_path / PLACE / "table2-toy-base-linear-s1.slurm-1.log"
    log.write_text(f"{PAGE_PREFIX}results/table2/toy.md\n")
    assert states(tmp_path)["base-linear-s1"].state == "done"


def test_progress_is_that_of_the_last_stretch(tmp_path):
    make(tmp_path, "rope-linear-s1", line(40, 400) + line(50, 10, 6.0) + line(60, 30, 4.5))
    submit(tmp_path, "rope-linear-s1", 7)
    running = Queued(7, "table2-toy-rope-linear-s1", "RUNNING")
    one = states(tmp_path, running)["rope-linear-s1"]
    assert (one.state, one.job, one.updates, one.total, one.loss) == ("running", 7, 60, 100, 4.5)
    assert one.seconds_left == pytest.approx(40 * 2.0)  # 20 seconds for ten updates


def test_the_start_of_an_earlier_stretch_does_not_count(tmp_path):
    """Though its seconds are fewer than those of the last line."""
    log = line(10, 1) + line(40, 4) + line(50, 2) + line(60, 22)
    submit(tmp_path, "rope-linear-s1", 7)
    make(tmp_path, "rope-linear-s1", log)
    one = states(tmp_path, Queued(7, "table2-toy-rope-linear-s1", "RUNNING"))["rope-linear-s1"]
    assert one.seconds_left == pytest.approx(40 * 2.0)


def test_the_time_left_is_that_of_all_trainings_of_a_run(tmp_path):
    submit(tmp_path, "rope-linear-s1", 7)
    running = Queued(7, "table2-toy-rope-linear-s1", "RUNNING")
    logs = {"CoLA-lr1": line(50, 5) + line(100, 10), "CoLA-lr2": line(20, 3) + line(40, 7, 4.5)}
    updates = {"CoLA-lr1": 100, "CoLA-lr2": 100, "RTE-lr1": 300}
    make_several(tmp_path, "rope-linear-s1", logs, updates)
    one = states(tmp_path, running)["rope-linear-s1"]
    assert (one.updates, one.total, one.loss) == (140, 500, 4.5)
    assert one.seconds_left == pytest.approx(360 * 4 / 20)


def test_without_the_number_of_updates_there_is_no_time_left(tmp_path):
    submit(tmp_path, "rope-linear-s1", 7)
    running = Queued(7, "table2-toy-rope-linear-s1", "RUNNING")
    logs = {"v1": line(50, 5) + line(90, 9), "v2": line(20, 3) + line(40, 7)}
    for updates in ({"v1": 0, "v2": 100}, {}):  # epochs end it; a journal of an earlier version
        make_several(tmp_path, "rope-linear-s1", logs, updates)
        one = states(tmp_path, running)["rope-linear-s1"]
        assert (one.updates, one.total, one.seconds_left) == (40, None, None)


def test_what_waits_says_slurms_reason(tmp_path):
    submit(tmp_path, "rope-linear-s1", 7)
    waiting = Queued(7, "table2-toy-rope-linear-s1", "PENDING", "Priority")
    one = states(tmp_path, waiting)["rope-linear-s1"]
    assert (one.state, one.reason, one.updates) == ("waiting", "Priority", None)


def test_what_failed_has_its_last_lines_and_its_children_its_name(tmp_path):
    submit(tmp_path, "base-linear-s1", 1, log="one\n\nValueError: no\n")
    submit(tmp_path, "rope-linear-s1", 2, after=["table2-toy-base-linear-s1"])
    submit(tmp_path, "t5-vanilla-s1", 3)
    found = states(tmp_path)
    failed = found["base-linear-s1"]
    assert (failed.state, failed.lines) == ("failed", ["one", "ValueError: no"])
    assert failed.log == f"{PLACE}/table2-toy-base-linear-s1.slurm-1.log"
    cancelled = found["rope-linear-s1"]
    assert (cancelled.state, cancelled.reason) == ("cancelled", "after table2-toy-base-linear-s1")
    assert found["t5-vanilla-s1"].reason == "before it began"


def test_a_job_that_goes_back_into_the_queue_waits(tmp_path):
    make(tmp_path, "rope-linear-s1", line(10, 1) + line(20, 2))
    submit(tmp_path, "rope-linear-s1", 7, log="It goes back into the queue.")
    requeued = Queued(7, "table2-toy-rope-linear-s1", "COMPLETING", "None")
    one = states(tmp_path, requeued)["rope-linear-s1"]
    assert (one.state, one.job, one.updates, one.seconds_left) == ("waiting", 7, 20, None)


def test_what_was_submitted_to_a_slurm_that_does_not_answer_is_unknown(tmp_path):
    make(tmp_path, "base-linear-s1", line(10, 1) + line(20, 2))
    submit(tmp_path, "base-linear-s1", 1, log="it may run still")
    submit(tmp_path, "rope-linear-s1", 2, after=["table2-toy-base-linear-s1"])
    submit(tmp_path, "t5-linear-s1", 3)
    write_result(tmp_path, "t5-linear-s1")
    make(tmp_path, "none-linear-s1", line(10, 1))
    found = states(tmp_path, None)
    assert {name: one.state for name, one in found.items()} == {
        "base-linear-s1": "unknown",
        "rope-linear-s1": "unknown",
        "t5-linear-s1": "done",
        "none-linear-s1": "stopped",  # no job of it was ever submitted
    }
    unknown = found["base-linear-s1"]
    assert (unknown.updates, unknown.seconds_left, unknown.lines) == (20, None, [])


def test_a_result_is_the_end_whatever_was_before(tmp_path):
    make(tmp_path, "rope-linear-s1", line(10, 1))
    submit(tmp_path, "rope-linear-s1", 2, log="killed")
    write_result(tmp_path, "rope-linear-s1")
    assert states(tmp_path)["rope-linear-s1"].state == "done"


def test_of_several_runs_in_a_job_those_with_a_result_are_done(tmp_path):
    pack = "base-linear-s1-and-1-more"
    submit(tmp_path, pack, 7, log="", runs=["base-linear-s1", "rope-linear-s1"])
    make(tmp_path, "base-linear-s1", line(100, 9))
    make(tmp_path, "rope-linear-s1", line(10, 1))
    write_result(tmp_path, "base-linear-s1")
    for state in ("RUNNING", "PENDING"):  # which it is again after preemption
        found = states(tmp_path, Queued(7, f"table2-toy-{pack}", state))
        assert found["base-linear-s1"].state == "done"
        assert found["rope-linear-s1"].state == {"RUNNING": "running", "PENDING": "waiting"}[state]


def test_a_result_that_a_later_job_replaces_is_not_the_end(tmp_path):
    result = write_result(tmp_path, "rope-linear-s1")
    os.utime(result, (0, 0))
    submit(tmp_path, "rope-linear-s1", 7)
    name = "table2-toy-rope-linear-s1"
    assert states(tmp_path, Queued(7, name, "RUNNING"))["rope-linear-s1"].state == "running"
    assert states(tmp_path, Queued(7, name, "PENDING"))["rope-linear-s1"].state == "waiting"
    write_result(tmp_path, "rope-linear-s1")
    assert states(tmp_path, Queued(7, name, "RUNNING"))["rope-linear-s1"].state == "done"


def test_of_several_runs_in_a_job_one_that_failed_is_said_before_the_job_ends(tmp_path):
    pack, name = "base-linear-s1-and-1-more", "rope-linear-s1"
    submit(tmp_path, pack, 7, log="", runs=["base-linear-s1", name])
    folder = make(tmp_path, name, line(10, 1) + "ValueError: no")
    Journal.read(folder).fail("training ended with status 1", folder / "train.log")
    running = Queued(7, f"table2-toy-{pack}", "RUNNING")
    one = states(tmp_path, running)[name]
    assert (one.state, one.reason) == ("failed", "training ended with status 1")
    assert (one.log, one.lines[-1]) == (f"{PLACE}/{name}/train.log", "ValueError: no")
    assert states(tmp_path, None)[name].state == "failed", "whatever Slurm says"
    with locks.exclusive_lock(folder.with_name(f"{name}.lock"), "this run"):  # it is tried again
        assert states(tmp_path, running)[name].state == "running"
    submit(tmp_path, name, 8)
    again = Queued(8, f"table2-toy-{name}", "PENDING", "Priority")
    assert states(tmp_path, again)[name].state == "waiting"


def test_a_run_of_this_machine_is_known_by_its_lock(tmp_path):
    folder = make(tmp_path, "rope-linear-s1", line(10, 1))
    assert states(tmp_path)["rope-linear-s1"].state == "stopped"
    with locks.exclusive_lock(folder.with_name("rope-linear-s1.lock"), "this run"):
        assert states(tmp_path)["rope-linear-s1"].state == "running"
    assert states(tmp_path)["rope-linear-s1"].state == "stopped"


def test_the_page_of_a_table_is_shown_with_its_runs(tmp_path):
    submit(tmp_path, "rope-linear-s1", 7)
    submit_page(tmp_path)
    waiting = Queued(9, f"table2-toy-{slurm_queue.RENDER}", "PENDING", "Dependency")
    one = states(tmp_path, waiting)["page"]
    assert (one.table, one.scale, one.state, one.reason) == (
        "table2",
        "toy",
        "waiting",
        "Dependency",
    )
    running = states(tmp_path, replace(waiting, state="RUNNING"))["page"]
    assert (running.state, running.job) == ("running", 9)
    assert states(tmp_path, None)["page"].state == "unknown"
    assert states(tmp_path)["page"].state == "cancelled"


def test_a_page_is_done_when_its_job_says_so_or_it_was_made_later(tmp_path):
    page = tmp_path / "results" / "table2" / "toy.md"
    page.parent.mkdir(parents=True)
    page.write_text("")
    os.utime(page, (0, 0))
    submit_page(tmp_path, log=f"numbers\n\n{PAGE_PREFIX}results/table2/toy.md\n")
    assert states(tmp_path)["page"].state == states(tmp_path, None)["page"].state == "done"
    submit_page(tmp_path, log="Traceback\nMemoryError\n")
    failed = states(tmp_path)["page"]
    assert (failed.state, failed.lines) == ("failed", ["Traceback", "MemoryError"])
    assert failed.log == f"{PLACE}/table2-toy-{slurm_queue.RENDER}.slurm-9.log"
    os.utime(page, (1e10, 1e10))
    assert states(tmp_path)["page"].state == "done"


def test_a_page_that_was_made_while_its_job_waited_may_be_made_once_more(tmp_path):
    """As each job of a table does at its end."""
    submit_page(tmp_path)
    page = tmp_path / "results" / "table2" / "toy.md"
    write_text(page, "")
    os.utime(page, (1e10, 1e10))
    assert states(tmp_path, None)["page"].state == "unknown"
    assert states(tmp_path)["page"].state == "done"


def test_the_job_of_table_9_has_its_own_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "read_queue", lambda root: {})
    submit_page(tmp_path, log="refused, nothing was timed\n", table="table9", name="table9-toy")
    assert command.main(["table9"]) == 1
    said = capsys.readouterr().out
    assert "FAILED table9 toy table9-toy, checkpoints/table9/toy/table9-toy.slurm-9.log:" in said
    assert "  | refused, nothing was timed" in said
    page = tmp_path / "results" / "table9" / "cpu.md"
    write_text(page, "")
    os.utime(page, (1e10, 1e10))
    assert command.main(["table9"]) == 0


def test_in_a_pipe_it_is_plain_text_and_for_programs_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "read_queue", lambda root: {})
    assert command.main([]) == 0
    assert capsys.readouterr().out == "no runs\n"
    submit(tmp_path, "base-linear-s1", 1, log="ValueError: no\n")
    write_result(tmp_path, "rope-linear-s1")
    assert command.main([]) == 1
    said = capsys.readouterr().out
    assert said.startswith("1 of 2 runs done, 1 failed\n") and "  | ValueError: no" in said
    assert "rope-linear-s1" not in said and "\x1b" not in said
    assert command.main(["--all", "table2"]) == 1 and "rope-linear-s1" in capsys.readouterr().out
    assert command.main(["table8"]) == 0
    capsys.readouterr()
    assert command.main(["--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert {one["state"] for one in said["runs"]} == {"failed", "done"}
    assert (said["done"], said["total"], said["problem"]) == (1, 2, "")
    with pytest.raises(SystemExit):
        command.main(["tabel2"])


def test_a_slurm_that_does_not_answer_is_said_and_is_no_failure(tmp_path, monkeypatch, capsys):
    def read_queue(root):
        raise NoSlurm("squeue does not answer")

    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "read_queue", read_queue)
    make(tmp_path, "base-linear-s1", line(10, 1))
    assert command.main([]) == 0
    assert "squeue" not in capsys.readouterr().out  # nothing here is Slurm's
    submit(tmp_path, "rope-linear-s1", 2, log="it may run still")
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert "1 unknown" in said and "Slurm's queue is not known: squeue does not answer" in said
    assert "FAILED" not in said
    assert command.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"] == "squeue does not answer"
    assert command.main(["table8"]) == 0
    assert "squeue" not in capsys.readouterr().out


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A run that waits, one that runs as a job, one that failed, and one cut off outside Slurm."""
    place = tmp_path / "repository"
    submit(place, "rope-linear-s1", 7)
    make(place, "rope-linear-s1", line(40, 10, 6.0) + line(60, 70, 4.5))
    submit(place, "t5-linear-s1", 8)
    submit(place, "base-linear-s1", 6, log="ValueError: no\n")
    make(place, "none-linear-s1", line(10, 1, 9.25))
    queue = [
        Queued(7, "table2-toy-rope-linear-s1", "RUNNING", "None"),
        Queued(8, "table2-toy-t5-linear-s1", "PENDING", "ReqNodeNotAvail, [/n17]"),
    ]
    monkeypatch.setattr(command, "ROOT", place)
    monkeypatch.setattr(command, "read_queue", lambda root: {one.name: one for one in queue})
    return place


def cells_of(said, name):
    """The words of a run's line, without what a table is drawn with."""
    (found,) = [one for one in said.splitlines() if f"{name} " in one and "FAILED" not in one]
    return [word for word in found.split() if word not in ("│", "┃")]


def test_a_line_of_plain_text_says_update_loss_and_time_left(repository, capsys):
    assert command.main([]) == 1
    said = capsys.readouterr().out
    assert said.startswith("0 of 4 runs done, 1 running, 1 waiting, 1 failed, 1 stopped\n")
    # 40 updates are left, 3 seconds each.
    assert cells_of(said, "rope-linear-s1")[2:] == [
        *("rope-linear-s1", "running", "7", "60/100", "4.50", "2:00")
    ]
    assert cells_of(said, "none-linear-s1")[3:] == ["stopped", "10/100", "9.25"]
    assert cells_of(said, "t5-linear-s1")[3:] == ["waiting", "8", "ReqNodeNotAvail,", "[/n17]"]


def test_a_study_is_shown_by_its_name(repository, capsys):
    make(repository, "rope-linear-s1", line(10, 1, 9.25))
    (repository / PLACE).rename(repository / PLACE.replace("toy", "mine"))
    make(repository, "rope-linear-s1", line(10, 1, 9.25))
    assert command.main(["--name", "mine", "--json"]) in (0, 1)
    assert {one["scale"] for one in json.loads(capsys.readouterr().out)["runs"]} == {"mine"}


def test_runs_that_never_began_are_not_counted_and_this_is_said(repository, capsys):
    unknown = "Runs that a stopped command had not begun are unknown and not counted."
    command.main([])
    assert unknown in capsys.readouterr().out
    command.main(["--scale", "mini"])
    assert unknown not in capsys.readouterr().out


def test_on_a_terminal_it_is_drawn_anew_until_ctrl_c(repository, monkeypatch, capsys):
    """Between two looks the run comes further; what failed is told at the end."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    looks = []

    def sleep(seconds):
        looks.append(capsys.readouterr().out)
        if len(looks) == 2:
            raise KeyboardInterrupt
        log = repository / PLACE / "rope-linear-s1" / "train.log"
        log.write_text(log.read_text() + line(80, 130, 4.25))

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert command.main([]) == 1
    first, second = (ANSI.sub("", look) for look in looks)
    assert "0 of 4 runs done, 1 running" in first
    running = ["running", "7", "60/100", "4.50", "2:00"]
    assert cells_of(first, "rope-linear-s1")[3:] == running
    assert cells_of(second, "rope-linear-s1")[3:] == ["running", "7", "80/100", "4.25", "1:00"]
    assert cells_of(first, "none-linear-s1")[3:] == ["stopped", "10/100", "9.25"]
    assert "[/n17]" in first and "ValueError" not in second
    assert "  | ValueError: no" in capsys.readouterr().out


def test_what_is_drawn_fits_the_terminal_and_says_what_is_wrong(repository):
    found = RunStatuses(command.ROOT, slurm_queue.read_submissions(command.ROOT), None).statuses()
    table = command._drawn(found, "squeue: [/tmp] is away", 2, is_all=False)
    assert table.row_count == 2
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    said = console.file.getvalue()
    assert "squeue: [/tmp] is away" in said and "unknown" in said


RESULT_FAULTS = {
    "empty": lambda text: "",
    "half": lambda text: text[: len(text) // 2],
    "binary": lambda text: "\x00\xff" * 9,
    "a list": lambda text: "[1]",
    "nothing": lambda text: "{}",
    "of another run": lambda text: text.replace('"rope"', '"alibi"'),
    "of another table": lambda text: text.replace('"table2"', '"table3"'),
    "without a number": lambda text: text.replace("1.5", "NaN", 1),
    "a seed in words": lambda text: text.replace('"seed": 1', '"seed": "one"'),
}


@pytest.mark.parametrize("fault", RESULT_FAULTS)
def test_a_damaged_result_is_no_end(tmp_path, fault):
    path = write_result(tmp_path, "rope-linear-s1")
    assert states(tmp_path)["rope-linear-s1"].state == "done"
    path.write_text(RESULT_FAULTS[fault](path.read_text()))
    one = states(tmp_path)["rope-linear-s1"]
    assert one.state == "failed"
    assert one.reason.startswith("results/table2/toy/rope-linear-s1.json is damaged: ")


@pytest.mark.parametrize("name", ["read_text", "open"])  # of its journal, and of its log
def test_a_run_whose_files_are_unreadable_is_unknown_and_the_others_are_shown(
    tmp_path, monkeypatch, name
):
    make(tmp_path, "rope-linear-s1", line(5, 10) + line(6, 12))
    write_result(tmp_path, "base-linear-s1")
    method = getattr(Path, name)

    def read_or_refuse(path: Path, *options: object, **named: object) -> object:
        if path.parent.name == "rope-linear-s1":
            raise PermissionError(13, "Permission denied", str(path))
        return method(path, *options, **named)

    monkeypatch.setattr(Path, name, read_or_refuse)
    found = states(tmp_path)
    assert found["base-linear-s1"].state == "done"
    assert found["rope-linear-s1"].state == "unknown"
    assert "Permission denied" in found["rope-linear-s1"].reason


@pytest.mark.parametrize("value", ["x", None, [], {}, -1, True, 1e999])
@pytest.mark.parametrize("name", ["run.json", slurm_queue.SUBMISSIONS, "train.log"])
def test_damaged_notes_are_no_traceback(tmp_path, name, value, monkeypatch, capsys):
    """Each entry of each file in turn holds what cannot stand there."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "read_queue", lambda root: {})
    folder = make(tmp_path, "rope-linear-s1", line(5, 10) + line(6, 12))
    submit(tmp_path, "rope-linear-s1", 7, after=["x"])
    path = tmp_path / PLACE / name if name == slurm_queue.SUBMISSIONS else folder / name
    text = path.read_text()
    start = text.rindex("{", 0, text.rindex("}")) if name == "train.log" else 0
    sound = json.loads(text[start:])
    for key in [*sound, None]:
        damaged = value if key is None else {**sound, key: value}
        path.write_text(text[:start] + json.dumps(damaged) + "\n")
        assert command.main(["--json"]) in (0, 1)
        json.loads(capsys.readouterr().out)
