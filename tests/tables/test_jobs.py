"""Runs side by side: they overlap, fail and stop each by itself, and share the machine."""

import io
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fairseq_plugins.cli.table_options import get_parser
from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common import cpu
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.results import read_result
from fairseq_plugins.runner import preflight, table_command, table_runner, worker_pool
from fairseq_plugins.runner.interruption import Interruption, Terminated
from fairseq_plugins.runner.launcher import PreloadedLauncher, ProcessLauncher, get_launchers
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.progress import DONE, TRAINING, Progress
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.worker_pool import environments, side_by_side
from tests.tables.fake_fairseq import FakeFairseq, run_table

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = EXPERIMENTS[TABLE_2.experiment]
TOY = EXPERIMENT.scales["toy"]
ROWS = ["base", "rope", "lrpe_type2", "none"]
PATIENCE = 60.0  # seconds that nothing here takes but by mistake


@pytest.fixture(scope="module")
def planned(configs):
    return plan_rows(configs, Devices(0))


def plan_rows(configs, devices):
    found, _ = plan(
        configs, TABLE_2, TOY, devices, rows=ROWS, attentions=["linear"], seeds=[1]
    )  # fmt: skip
    return found


def work(root, planned, fake, count):
    return run_table(root, planned, RunOptions(jobs=count), launcher=fake)


def result_of(root, one):
    return read_result(root / one.run.result, EXPERIMENT.metrics)


class Meeting(FakeFairseq):
    """Each training waits until so many others have begun; counts how many there are at once."""

    def __init__(self, root, parties, **more):
        super().__init__(root, **more)
        self.barrier, self.lock = threading.Barrier(parties), threading.Lock()
        self.now = self.most = 0

    def _train(self, overrides, log, on_lines):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.barrier.wait(PATIENCE)
        status = super()._train(overrides, log, on_lines)
        with self.lock:
            self.now -= 1
        return status


def test_as_many_runs_as_asked_for_overlap_and_end_as_one_after_the_other(
    root, planned, capsys, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    fake = Meeting(root, 2)
    assert work(root, planned, fake, 2) == 0
    assert fake.most == 2
    assert sorted(fake.trained) == sorted((one.run.name, 0) for one in planned)
    assert len(fake.evaluated) == 2 * len(planned)
    output = capsys.readouterr().out
    side = {one.run: result_of(root, one) for one in planned}
    for one in planned:
        assert f"{one.run.name}: done, PPL (valid) 90.51" in output
        (root / one.run.result).unlink()
    assert work(root, planned, FakeFairseq(root), 1) == 0
    for one in planned:
        after, beside = result_of(root, one), side[one.run]
        assert beside["hardware"].pop("threads") == 3
        assert after["hardware"].pop("threads") == torch.get_num_threads()
        for found in (after, beside):
            del found["wall_seconds"], found["finished_at"], found["metrics"]["train_seconds"]
        assert after == beside


def test_a_failing_run_stops_no_other(root, planned, capsys):
    fake = Meeting(root, 2, failing=["base", "none"])
    assert work(root, planned, fake, 2) == 1
    assert [bool(result_of(root, one)) for one in planned] == [False, True, True, False]
    said = capsys.readouterr().out.split("The whole table")[1]
    assert said.index("FAILED base-linear-s1") < said.index("FAILED none-linear-s1")


class Stopping(Meeting):
    """Rope is interrupted at update 100 while base goes on until it is told to stop."""

    def _train(self, overrides, log, on_lines):
        if overrides["model"] == "rope":  # and no other: this thread may be the later one
            self.stop_at = 100
        if overrides["model"] == "base":
            self.barrier.wait(PATIENCE)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                time.sleep(0.01)
                on_lines([])  # raises, as everything that runs is told to stop
        return super()._train(overrides, log, on_lines)


def test_an_interruption_stops_all_and_the_next_call_goes_on(root, planned, capsys):
    begun = time.monotonic()
    fake = Stopping(root, 2)
    assert work(root, planned, fake, 2) == 130
    assert time.monotonic() - begun < PATIENCE
    assert fake.trained == [("rope-linear-s1", 0)]
    assert "The same command goes on from the last checkpoint" in capsys.readouterr().out
    assert not any(result_of(root, one) for one in planned)
    again = Meeting(root, 2)
    assert work(root, planned, again, 2) == 0
    starts = dict(again.trained)
    assert starts.pop("rope-linear-s1") == 100
    assert set(starts.values()) == {0} and len(starts) == 3


def test_what_nobody_expects_stops_the_others_too(root, planned):
    class Broken(Stopping):
        def _train(self, overrides, log, on_lines):
            if overrides["model"] == "rope":
                self.barrier.wait(PATIENCE)
                raise ZeroDivisionError
            return super()._train(overrides, log, on_lines)

    fake = Broken(root, 2)
    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        work(root, planned, fake, 2)
    assert time.monotonic() - begun < PATIENCE
    assert not fake.trained


def test_nothing_begins_after_a_failure_and_the_first_is_raised():
    places = [0, 1]
    for _ in range(200):
        begun = []

        def run(work, place, begun=begun):
            begun.append(work)
            raise ZeroDivisionError(work)

        with pytest.raises(ZeroDivisionError):
            list(side_by_side(run, range(20), places, Interruption()))
        assert set(begun) <= {0, 1}  # one of each thread, where the second began in time


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("kind", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_leaves_no_command_behind(tmp_path, kind, raised):
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    logs = [tmp_path / str(number) for number in range(3)]
    interruption, sent = Interruption(), []

    def run(log, launch):
        def on_lines(lines):
            if all(other.exists() and other.read_text() for other in logs[:2]):
                sent.append(kind)
                os.kill(os.getpid(), kind)  # more than once, as by someone impatient
                time.sleep(0.1)
            interruption.check()

        return launch([sys.executable, "-c", code], log, on_lines)

    with interruption.on_signals(), pytest.raises(raised) as caught:
        list(side_by_side(run, logs, [ProcessLauncher(tmp_path)] * 2, interruption))
    assert caught.type is raised and sent
    assert not any(alive(int(log.read_text())) for log in logs[:2])
    assert not logs[2].exists()
    assert signal.getsignal(kind) is not None


def test_a_signal_while_late_runs_stop_is_not_forgotten():
    interruption = Interruption()
    with interruption.on_signals():
        interruption.request()  # by runs that are late
        os.kill(os.getpid(), signal.SIGTERM)
        interruption.reset()
        with pytest.raises(Terminated):
            interruption.check()
    interruption = Interruption()
    interruption.request()
    interruption.reset()
    interruption.check()


@pytest.mark.usefixtures("quick_preload")
def test_commands_run_side_by_side_in_forks_of_one_process(tmp_path, monkeypatch):
    """Each waits for the other, tells its own status and lines, and keeps its own descriptors."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "meets.py").write_text(
        "import os, pathlib, sys, time\n"
        "own, other, status = sys.argv[1:]\n"
        "pathlib.Path(own).write_text(f'{os.getpid()} {os.getppid()}')\n"
        "end = time.monotonic() + 60\n"
        "while not pathlib.Path(other).exists() and time.monotonic() < end:\n"
        "    time.sleep(0.01)\n"
        "print(own, os.environ['OMP_NUM_THREADS'])\n"
        "sys.exit(int(status))\n"
    )
    (tmp_path / "late.py").write_text(
        "import os, time\nprint(os.getpid(), file=open('late', 'w'), flush=True)\ntime.sleep(60)\n"
    )

    def stop(lines):
        raise KeyboardInterrupt

    lines = {"a": [], "b": []}
    begun = time.monotonic()
    with get_launchers(tmp_path, 0, [{"OMP_NUM_THREADS": "3"}] * 2) as launchers:
        assert all(isinstance(one, PreloadedLauncher) for one in launchers)
        with pytest.raises(KeyboardInterrupt):  # while the process imports, which takes seconds
            launchers[0]([sys.executable, "-m", "late"], tmp_path / "log", stop)
        assert time.monotonic() - begun < PATIENCE and not (tmp_path / "late").exists()

        def run(names, launch):
            own, other, status = names
            command = [sys.executable, "-m", "meets", own, other, status]
            return launch(command, tmp_path / f"{own}.log", lines[own].extend)

        works = [("a", "b", "4"), ("b", "a", "5")]
        ended = side_by_side(run, works, launchers, Interruption())
        statuses = {own: status for (own, _, _), status in ended}
    assert time.monotonic() - begun < 60
    assert statuses == {"a": 4, "b": 5}
    assert lines == {"a": ["a 3"], "b": ["b 3"]}
    pids = [(tmp_path / name).read_text().split() for name in "ab"]
    assert pids[0][0] != pids[1][0] and pids[0][1] == pids[1][1]  # children of one process
    assert not alive(int(pids[0][1]))
    late = (tmp_path / "late").read_text() if (tmp_path / "late").exists() else ""
    assert not late or not alive(int(late))


def test_gpus_are_the_runs_own(root, configs, monkeypatch):
    held, most = [], []

    class OnGpus(Meeting):
        def __init__(self, root, parties, own):
            super().__init__(root, 1)
            self.barrier, self.own = parties, own["CUDA_VISIBLE_DEVICES"]

        def __call__(self, command, log, on_lines, keep_open=()):
            assert self.own not in held
            held.append(self.own)
            most.append(sorted(held))
            try:
                return super().__call__(command, log, on_lines, keep_open)
            finally:
                held.remove(self.own)

    @contextmanager
    def fakes(root, gpus, found):
        parties = threading.Barrier(2)
        yield [OnGpus(root, parties, own) for own in found]

    monkeypatch.setattr(table_runner, "get_launchers", fakes)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,6,7,8")
    planned = plan_rows(configs, Devices(2))
    assert table_command.run_table(root, planned, RunOptions(jobs=2)) == 0
    assert ["2,3", "6,7"] in most
    assert {gpu for found in most for gpu in found} == {"2,3", "6,7"}


def test_shares_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    threads = {"OMP_NUM_THREADS": "2"}
    assert environments(3, 1) == [threads | {"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(3)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    shared = [one["CUDA_VISIBLE_DEVICES"] for one in environments(5, 1)]
    assert shared == ["0", "1", "0", "1", "0"]
    assert environments(1, 0) == environments(1, 8) == [{}]
    assert environments(3, 0) == [{"OMP_NUM_THREADS": "2"}] * 3
    assert environments(9, 0) == [{"OMP_NUM_THREADS": "1"}] * 9
    with get_launchers(tmp_path, 1, environments(4, 1)) as launchers:
        assert launchers[0] is launchers[2] and launchers[1] is launchers[3]
        assert launchers[0] is not launchers[1]
        for launch in launchers[:2]:
            code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
            assert launch([sys.executable, "-c", code], tmp_path / "log", lambda lines: None) == 0
    assert (tmp_path / "log").read_text().split() == ["0", "1"]


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 1), ("400000 100000", 4), ("max 100000", 6), (None, 6)]
)
def test_a_container_s_limit_counts_and_so_does_a_set_number(tmp_path, monkeypatch, limit, cores):
    if limit:
        (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(cpu, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu, "cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert worker_pool.usable_threads() == cores
    for words in ("0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", words)
        assert worker_pool.usable_threads() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert worker_pool.usable_threads() == 3


def test_by_default_there_is_a_run_for_each_thread(root, planned, monkeypatch):
    def default(*more):
        args = get_parser("table2").parse_args(["--scale", "toy", *more])
        return table_command._check_start(root, planned, Devices(0), args)

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert default() == 3
    for devices in (Devices(2), Devices(1, srun=True)):
        assert preflight.default_jobs(planned, devices) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert default() == 4
    work(root, planned[:3], FakeFairseq(root), 1)
    assert default() == 1
    assert default("--force") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "`--jobs` must be at least 1, but is 0 instead"),
        (["--jobs", "9", "--gpus", "1", "--slurm"], "must be at most the 8 GPUs of a node"),
        (
            ["--jobs", "3", "--gpus", "2"],
            "`--jobs` times `--gpus` must be at most the 4 GPUs that PyTorch finds here, "
            "but is 3 x 2 = 6 instead",
        ),
    ],
)
def test_impossible_jobs_are_refused_before_anything_starts(
    root, words, message, monkeypatch, capsys
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(SystemExit) as stopped:
        main(["table2", "--scale", "toy", "--rows", "rope", "--attention", "linear", *words], root)
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(root.glob("checkpoints/**/run.json"))


def test_time_left_is_until_the_last_of_those_at_once():
    now = [0.0]
    progress = Progress("title", list("abcdef"), 2, clock=lambda: now[0])
    for name, updates in (("a", 50), ("b", 20)):
        line = progress.runs[name]
        line.state, line.began, line.total = TRAINING, 0.0, 100
        line.first, line.updates = (0.0, 0), updates
    now[0] = 10.0
    # 10 and 40 seconds are left; the four others take (20 + 50) / 2 each: 10, 45, 80 | 40, 75, 110
    assert progress.all_seconds_left() == pytest.approx(110.0)
    progress.deadline = progress.clock() + 20.0
    assert progress.all_seconds_left() == pytest.approx(20.0)
    progress.deadline = None
    for name in "ab":
        line = progress.runs[name]
        line.state, line.ended = DONE, 30.0
    assert progress.all_seconds_left() == pytest.approx(60.0)  # four of 30 seconds, two at once
    for name in "cdef":
        progress.runs[name].state = DONE
    assert progress.all_seconds_left() == 0.0


def test_the_screen_shows_every_run_that_goes_on():
    names = [f"run{number}" for number in range(60)]
    progress = Progress("title", names, 3, stream=io.StringIO())
    for name in ("run2", "run30", "run31"):
        progress.runs[name].state = TRAINING
    lines = progress._window(list(progress.runs.values()))
    shown = [line.name for line in lines]
    assert {"run2", "run30", "run31"} <= set(shown) and len(shown) < 60
    assert shown == sorted(shown, key=names.index)


def test_news_of_many_threads_are_whole_lines():
    names = [f"run{number}" for number in range(8)]
    stream = io.StringIO()

    def tell(name, place):
        for updates in range(30):
            progress.begin_training(name, updates, 30)
            progress.train(name, updates, 7.0)
            progress.say(f"{name}: said")
        progress.change(name, DONE)

    with Progress("title", names, 8, stream=stream) as progress:
        list(side_by_side(tell, names, range(8), Interruption()))
    lines = stream.getvalue().splitlines()
    for name in names:
        own = [line for line in lines if line.startswith(f"{name}: ")]
        assert own.count(f"{name}: said") == 30
        assert sum("training" in line for line in own) >= 30
        assert own[-1] == f"{name}: done"
    assert all(line.count("run") == 1 for line in lines)
