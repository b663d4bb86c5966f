"""Table 9 as a job of a paper: pages of their own, its time limit, and the note that it is done."""

import json
import signal
import threading

import pytest

from benchmarks import context, table9, table9_cells
from fairseq_plugins.runner import slurm_queue

WORDS = ["--quick", "--rows", "base,rope", "--attention", "linear"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Where results go that are given no folder."""
    monkeypatch.setattr(context, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """The commands that were given to Slurm."""
    found = []
    monkeypatch.setattr(slurm_queue, "_ask", lambda words: found.append(words) or "")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    return found


@pytest.fixture
def warned(monkeypatch):
    """Slurm warns in the cell of RoPE as often as there is a word in the list."""
    measure, warnings = table9_cells.measure_cell, ["once"]

    def warn(settings, context, row, attention):
        if row == "rope" and warnings:
            warnings.pop()
            # To this thread: those of a test runner do not hold it back.
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return measure(settings, context, row, attention)

    monkeypatch.setattr(table9_cells, "measure_cell", warn)


def in_job(root):
    return ["--name", "toy", "--srun", "--done", str(root / "done.json")]


@pytest.mark.slow
def test_a_named_page_leaves_the_published_one_alone(repository):
    published = repository / "results" / "table9" / "cpu.md"
    published.parent.mkdir(parents=True)
    published.write_text("published")
    assert table9.main([*WORDS, "--name", "toy"]) == 0
    assert published.read_text() == "published"
    assert not (published.parent / "cpu").exists()
    page = (published.parent / "toy" / "cpu.md").read_text()
    assert "| RoPE (`rope`) | 0.97 |" in page and "on a CPU" in page
    assert len([*(published.parent / "toy" / "cpu").glob("*.json")]) == 2


@pytest.mark.parametrize("name", ["../cpu", "a/b", ""])
def test_such_a_name_is_a_word(name, capsys):
    with pytest.raises(SystemExit):
        table9.main(["--name", name])
    assert "`--name` must be letters, digits" in capsys.readouterr().err


@pytest.mark.slow
def test_a_job_notes_that_it_is_done(repository):
    assert table9.main([*WORDS, *in_job(repository)]) == 0
    command = ["scripts/table9.sh", *WORDS, "--name", "toy"]
    found = json.loads((repository / "done.json").read_text())
    assert found == {"command": command, "page": "results/table9/toy/cpu.md"}
    cell = repository / "results" / "table9" / "toy" / "cpu" / "rope-linear.json"
    assert json.loads(cell.read_text())["command"] == command


@pytest.mark.slow
def test_warned_of_its_time_limit_it_goes_back_and_on(repository, asked, warned, capsys):
    words = [*WORDS, *in_job(repository)]
    assert table9.main(words) == 0
    assert asked == [["scontrol", "requeue", "12"]]
    assert not (repository / "done.json").exists()
    assert table9.main(words) == 0
    said = capsys.readouterr().out
    assert "base, linear: done before" in said
    assert len(asked) == 1 and (repository / "done.json").is_file()


def test_a_limit_too_short_for_a_cell_is_a_failure(repository, asked, warned, capsys):
    words = ["--quick", "--rows", "rope", "--attention", "linear", *in_job(repository)]
    assert table9.main(words) == 1
    assert asked == []
    assert "the time limit of job 12 ends before its first cell" in capsys.readouterr().out


def test_a_signal_before_anything_is_ready_waits(repository, asked, monkeypatch):
    """As while PyTorch is imported, which takes seconds."""

    def prepare():
        # To this thread: those of a test runner do not hold it back.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    monkeypatch.setattr(context, "prepare_cpu", prepare)
    words = ["--quick", "--rows", "rope", "--attention", "linear", *in_job(repository)]
    assert table9.main(words) == 1
