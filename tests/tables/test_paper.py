"""A whole paper in one command: what it refuses, and the job or command of the table that times."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from fairseq_plugins.cli.table_options import get_paper_parser
from fairseq_plugins.cli.train_table import main
from fairseq_plugins.runner import paper

ALONE = ("paper", "--scale", "toy", "--rows", "lrpe_identity")  # which Table 5 alone has
COMMAND = "scripts/table9.sh --rows lrpe_identity --quick --name toy"


@pytest.fixture
def scripts(place):
    """Scripts that note how they were called."""
    folder = place / "scripts"
    folder.mkdir()
    for name in ("table5", "table9"):
        script = folder / f"{name}.sh"
        script.write_text('#!/bin/sh\necho "$0 $*" >>called\n')
        script.chmod(0o755)
    return place


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_table_end_and_begins_no_other(scripts, kind):
    (scripts / "scripts" / "table5.sh").write_text(
        f"#!{sys.executable}\nimport os, signal, time\n"  # a shell keeps ignored signals ignored
        "def end(*_):\n    time.sleep(1); print('ended', file=open('called', 'a')); os._exit(130)\n"
        "for kind in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(kind, end)\n"
        "print('began', file=open('called', 'a'))\nwhile True:\n    time.sleep(0.05)\n"
    )

    def send():
        while not (scripts / "called").exists():
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), kind)

    threading.Thread(target=send, daemon=True).start()
    assert main([*ALONE], scripts) == 130
    assert (scripts / "called").read_text().split() == ["began", "ended"]


def write_done(root, command=COMMAND):
    path = root / "checkpoints" / "table9" / "toy" / "done.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    page = "results/table9/toy/cpu.md"
    path.write_text(json.dumps({"command": command.split(), "page": page}))
    (root / page).parent.mkdir(parents=True, exist_ok=True)
    (root / page).touch()
    return root / page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "paper", "--jobs", "8"], "must be at most the 8 GPUs of a node with --slurm, "
         "but is 8 x 8 = 64 instead"),
        (["--scale", "toy", "--jobs", "0"], "`--jobs` must be at least 1, but is 0 instead"),
        (["--max-running", "-1"], "`--max-running` must be at least 0, but is '-1'"),
        (["--max-running", "some"], "`--max-running` must be at least 0"),
        (["--scale", "published"], "`--scale` must be one that all tables of the paper have"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [["--slurm"], ["--slurm", "--dry-run"]])
def test_impossible_papers_are_refused_before_anything_starts(
    root, cluster, words, message, more, capsys
):
    with pytest.raises(SystemExit) as stopped:
        main(["paper", "--rows", "lrpe_identity", *words, *more], root)
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert cluster.submitted == []


def test_a_table_refuses_such_a_limit_too(root, capsys):
    with pytest.raises(SystemExit):
        main(["table2", "--scale", "toy", "--rows", "base", "--slurm", "--max-running", "-1"], root)
    assert "`--max-running` must be at least 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["paper", "--rows", "lrpe_identity", "--jobs", "2"], "jobs"),
        (["paper", "--rows", "lrpe_identity", "--max-running", "2"], "max-running"),
        (["table2", "--rows", "base", "--max-running", "2"], "max-running"),
    ],
)
def test_what_is_of_jobs_alone_is_refused_without_slurm(root, capsys, words, option):
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--scale", "toy"], root)
    assert stopped.value.code == 2
    assert f"`--{option}` must be left out without `--slurm`" in capsys.readouterr().err


def test_table_9_is_submitted_until_it_is_done(scripts, cluster, capsys):
    assert main([*ALONE, "--slurm"], scripts) == 0
    assert cluster.names()[-1] == "table9-toy"
    (words,) = (w for w in cluster.submitted[-1] if w.startswith("--wrap="))
    assert f"{COMMAND} --srun --done checkpoints/table9/toy/done.json" in words
    assert "--signal=B:USR1@120" in cluster.submitted[-1]
    cluster.keep()
    assert main([*ALONE, "--slurm"], scripts) == 0
    assert cluster.submitted == []
    assert "table9-toy: is in the queue already as job" in capsys.readouterr().out
    del cluster.queued["table9-toy"]
    page = write_done(scripts)
    assert main([*ALONE, "--slurm"], scripts) == 0
    assert cluster.submitted == []
    assert "table9-toy: done already" in capsys.readouterr().out
    page.unlink()
    assert main([*ALONE, "--slurm"], scripts) == 0
    assert cluster.names() == ["table9-toy"]
    cluster.submitted.clear()
    write_done(scripts, command="scripts/table9.sh --rows base --quick --name toy")
    assert main([*ALONE, "--slurm"], scripts) == 0
    assert cluster.names() == ["table9-toy"]


@pytest.mark.parametrize(
    ("scale", "gpus", "line"),
    [
        ("toy", "0", "table9-toy: CPU"),
        ("mini", "0", "table9-mini: CPU, a node for itself"),
        ("paper", "8", "table9-paper: 1 GPUs, a node for itself"),
    ],
)
def test_the_plan_has_table_9(scripts, capsys, scale, gpus, line):
    words = ["paper", "--scale", scale, "--rows", "lrpe_identity", "--gpus", gpus, "--dry-run"]
    assert main(words, scripts) == 0
    said = capsys.readouterr().out
    assert f"  {line}\n" in said
    assert f"Jobs in the order of submission: {said.count(chr(10) + '  table')}\n" in said


@pytest.mark.parametrize(("gpus", "asked"), [(8, "--gpus-per-node=1"), (0, "--cpus-per-task=1")])
def test_its_node_is_its_own(scripts, monkeypatch, gpus, asked):
    def sbatch(scale):
        args = get_paper_parser().parse_args(["--scale", scale, "--rows", "base"])
        (job,) = paper._timing_jobs(scripts, args, gpus)
        assert asked in job.sbatch({})
        return {word for word in job.sbatch({}) if word.startswith(("--exclusive", "--mem"))}

    # Slurm takes one of its options for memory alone.
    assert sbatch("paper") == {"--exclusive", "--mem=0"}
    assert "--exclusive" not in sbatch("toy")
    monkeypatch.setenv("SBATCH_MEM_PER_NODE", "9G")
    assert sbatch("paper") == {"--exclusive"}


def test_without_slurm_its_script_comes_last(scripts):
    assert main(ALONE, scripts) == 0
    called = (scripts / "called").read_text().splitlines()
    assert called[0].startswith("scripts/table5.sh --scale toy --rows lrpe_identity")
    assert called[1:] == [COMMAND]


def test_without_its_script_there_is_no_table_9(place, cluster):
    """As in an installed package."""
    assert main([*ALONE, "--slurm"], place) == 0
    assert cluster.names()[-1] == "table5-toy-render"


def test_the_plan_follows_what_is_kept(root, capsys):
    rooms = []
    for words in ([], ["--keep", "best"], ["--keep", "best", "--max-running", "1"]):
        main(["paper", "--scale", "paper", "--rows", "base", "--dry-run", *words], root)
        said = capsys.readouterr().out
        (line,) = (line for line in said.splitlines() if line.startswith("all"))
        most = said.partition("at most ")[2].partition(" GB")[0]
        rooms.append((float(line.split()[-1]), float(most)))
    (every, _), (best, wide), (same, narrow) = rooms
    assert best == same < every
    assert best < narrow < wide
