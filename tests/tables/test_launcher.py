"""Commands are followed and never left behind; progress estimates the time that is left."""

import errno
import io
import os
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairseq_plugins.runner import launcher
from fairseq_plugins.runner.launcher import PreloadedLauncher, ProcessLauncher
from fairseq_plugins.runner.progress import DONE, FAILED, TRAINING, Progress, duration

ROOT = Path(__file__).resolve().parents[2]


def test_launcher_follows_the_log_and_returns_the_status(tmp_path):
    log, seen = tmp_path / "out.log", []
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    status = ProcessLauncher(tmp_path)([sys.executable, "-c", code], log, seen.extend)
    assert status == 3
    assert sorted(seen) == ["one", "two"]
    assert sorted(log.read_text().split()) == ["one", "two"]


def test_only_slurm_s_own_commands_see_its_variables(tmp_path, monkeypatch):
    """fairseq would take its number of processes from those of the shell's allocation."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nexec "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = [sys.executable, "-c", "import os; print(os.environ.get('SLURM_JOB_ID'))"]
    launch, log = ProcessLauncher(tmp_path), tmp_path / "log"
    assert launch(program, log, lambda lines: None) == 0
    assert launch(["srun", *program], log, lambda lines: None) == 0
    assert log.read_text().split() == ["None", "7"]


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        ({}, "PASSIVE None"),
        pytest.param({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None", marks=pytest.mark.slow),
        pytest.param({"GOMP_SPINCOUNT": "7"}, "None 7", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("quick_preload")
def test_threads_sleep_where_they_wait_unless_the_user_said_how(tmp_path, monkeypatch, own, seen):
    """Spinning ones take the processor from those that they wait for, on a machine with others."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code = "import os; print(*map(os.environ.get, ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')))"
    (tmp_path / "told.py").write_text(code)
    log = tmp_path / "log"
    assert ProcessLauncher(tmp_path)([sys.executable, "-c", code], log, print) == 0
    preloaded = PreloadedLauncher(tmp_path)
    assert preloaded([sys.executable, "-m", "told"], log, print) == 0
    preloaded.close()
    assert log.read_text().splitlines() == [seen, seen]


def test_launcher_ends_its_command_when_interrupted(tmp_path):
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def on_lines(lines):
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProcessLauncher(tmp_path)([sys.executable, "-c", code], tmp_path / "log", on_lines)
    assert not alive(int(pid_file.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_runner_takes_its_command_along(tmp_path):
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = (
        "import runpy, sys; from pathlib import Path\n"
        f"Launcher = runpy.run_path({launcher.__file__!r})['ProcessLauncher']\n"
        f"Launcher(Path('.'))([sys.executable, '-c', {child!r}], Path('log'), print)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path)
    wait_for(lambda: pid_file.exists() and pid_file.read_text(), 60)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(int(pid_file.read_text())), 10)


def test_preloaded_launcher_has_imported_what_trainings_need(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "told.py").write_text(
        "import logging, sys\n"
        "assert {'torch._dynamo', 'fairseq.trainer', 'sklearn.metrics'} < {*sys.modules}\n"
        "assert not logging.root.handlers and logging.root.manager.disable == 0\n"
    )
    preloaded = PreloadedLauncher(tmp_path)
    assert preloaded([sys.executable, "-m", "told"], tmp_path / "log", print) == 0
    preloaded.close()


@pytest.mark.usefixtures("quick_preload")
def test_preloaded_launcher_is_a_launcher(tmp_path, monkeypatch):
    """Lines, status, words and folder; descriptors kept; interrupted, and used again after that."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "told.py").write_text(
        "import os, sys\n"
        "assert __name__ == '__main__'\n"
        "import torch; assert torch.tensor(1e-30) * 1e-10 == 0  # settings of a CPU\n"
        "print(os.getcwd(), *sys.argv[1:])\n"
        "print('two', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    (tmp_path / "sleeps.py").write_text(
        "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    )
    log, pid_file, seen = tmp_path / "log", tmp_path / "pid", []
    launcher = PreloadedLauncher(tmp_path)
    command = [sys.executable, "-m"]
    assert launcher([*command, "told", "a", "b"], log, seen.extend) == 3
    assert sorted(seen) == [f"{tmp_path} a b", "two"]
    read, write = os.pipe()

    def interrupt(lines):
        if pid_file.exists() and pid_file.read_text():
            os.close(write)
            assert not select.select([read], [], [], 0)[0]  # the command holds its end
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher([*command, "sleeps"], log, interrupt, [write])
    assert not alive(int(pid_file.read_text()))
    assert os.read(read, 1) == b""  # and nobody else
    os.close(read)
    assert launcher([*command, "told", "c"], log, seen.extend) == 3
    assert seen[-2:] == [f"{tmp_path} c", "two"] or seen[-2:] == ["two", f"{tmp_path} c"]
    launcher._process.kill()
    launcher._process.wait()
    with pytest.raises(OSError, match="ended by itself"):  # the next run has a new one
        launcher([*command, "told", "d"], log, seen.extend)
    assert launcher([*command, "told", "e"], log, seen.extend) == 3
    assert launcher([sys.executable, "-c", "raise SystemExit(4)"], log, seen.extend) == 4
    launcher.close()


@pytest.mark.usefixtures("quick_preload")
def test_a_fork_ends_as_an_interpreter_does(tmp_path, monkeypatch):
    """What it registered for its end runs; an error is told with its traceback."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "fails.py").write_text(
        "import atexit, sys\n"
        "atexit.register(print, 'ended')\n"
        "print('begun', end=' ')\n"
        "if sys.argv[1:]: raise ValueError('no')\n"
    )
    log, launcher, command = tmp_path / "log", PreloadedLauncher(tmp_path), [sys.executable, "-m"]
    assert launcher([*command, "fails"], log, print) == 0
    assert log.read_text() == "begun ended\n"
    assert launcher([*command, "fails", "now"], log, print) == 1
    assert log.read_text().count("begun ended") == 2
    assert log.read_text().endswith("ValueError: no\n")
    launcher.close()


@pytest.mark.usefixtures("quick_preload")
def test_an_error_of_one_commands_files_leaves_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "waits.py").write_text(
        "import pathlib, sys, time\n"
        "print('begun', flush=True)\n"
        "while not pathlib.Path('end').exists(): time.sleep(0.05)\n"
        "sys.exit(3)\n"
    )
    launcher, command = PreloadedLauncher(tmp_path), [sys.executable, "-m", "waits"]
    seen = []

    def fail(lines):
        raise BrokenPipeError("nobody reads this program's output")

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(launcher, command, tmp_path / "log", seen.extend)
        wait_for(lambda: seen, 60)
        for log, on_lines in ((tmp_path / "missing" / "log", print), (tmp_path / "own", fail)):
            with pytest.raises(OSError, match=r"No such file|nobody reads"):
                launcher(command, log, on_lines)
        (tmp_path / "end").touch()
        assert other.result() == 3
    launcher.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_time_left_follows_the_speed_of_this_process():
    now = [0.0]
    progress = Progress("title", ["one", "two", "three"], clock=lambda: now[0])
    one = progress.runs["one"]
    one.state, one.began, one.total = TRAINING, 0.0, 300
    one.first, one.updates = (5.0, 110), 110  # resumed at 100, five seconds of start-up
    assert progress.seconds_left(one) is None
    now[0], one.updates = 15.0, 160
    assert progress.seconds_left(one) == pytest.approx(28.0)  # 50 updates in 10 s, 140 to go
    assert progress.all_seconds_left() == pytest.approx(28.0 + 2 * 65.0)
    one.state, one.ended = DONE, 50.0
    assert progress.all_seconds_left() == pytest.approx(2 * 50.0)
    assert [duration(s) for s in (None, 75, 3725)] == ["-", "1:15", "1:02:05"]


def test_a_run_of_two_trainings_takes_the_speed_of_the_second():
    now = [0.0]
    progress = Progress("title", ["one"])
    progress.clock = lambda: now[0]
    progress.begin_training("one", 0, 600)
    for now[0], updates in ((5.0, 20), (605.0, 600)):
        progress.train("one", updates, 7.0)
    progress.begin_training("one", 0, 500)
    for now[0], updates in ((610.0, 20), (620.0, 40)):
        progress.train("one", updates, 7.0)
    assert progress.seconds_left(progress.runs["one"]) == pytest.approx(230.0)


def test_brackets_and_colons_of_a_note_are_text_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True
    with Progress("[a/b]", ["one"], stream=stream) as progress:
        progress.change("one", FAILED, "[/data] :key: [gpu0]")
        progress.say("[/data] :key: [gpu0]")
    assert stream.getvalue().count("[/data] :key: [gpu0]") >= 2


def test_progress_without_a_terminal_is_lines(capsys):
    with Progress("title", ["one"]) as progress:
        progress.begin_training("one", 0, 100)
        progress.train("one", 10, 7.0)
        progress.change("one", DONE, "valid 80.00")
    assert capsys.readouterr().out.splitlines() == [
        "one: training, 0/100 updates",
        "one: done, valid 80.00",
    ]


class Broken(io.StringIO):
    """A stream that fails with an error of this number."""

    def __init__(self, number: int, *, terminal: bool) -> None:
        super().__init__()
        self.number, self.terminal = number, terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))

    def flush(self) -> None:
        self.write("")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])  # a full disk, a closed terminal
@pytest.mark.parametrize("terminal", [False, True])
def test_where_nothing_can_be_displayed_any_more_work_goes_on(number, terminal):
    stream = Broken(number, terminal=terminal)
    with Progress("title", ["one"], stream=stream) as progress:
        progress.say("text")
        progress.begin_training("one", 0, 100)
        progress.change("one", DONE)
    assert progress.runs["one"].state == DONE


def test_a_closed_pipe_ends_the_work():
    with pytest.raises(SystemExit):
        Progress("title", ["one"], stream=Broken(errno.EPIPE, terminal=False)).say("text")
