"""Which jobs runs become, what waits for what, and what is submitted."""

import json
import subprocess
import types
from dataclasses import replace

import pytest

from fairseq_plugins.reproduce.experiments.devices import Devices
from fairseq_plugins.reproduce.experiments.planned import plan_run
from fairseq_plugins.reproduce.record import submissions
from fairseq_plugins.reproduce.record.runs import Run
from fairseq_plugins.reproduce.run import queue, slurm
from fairseq_plugins.reproduce.run.chain import Chain, Job, at_most, jobs_of_run
from fairseq_plugins.reproduce.run.memory import DEFAULT_MIB
from fairseq_plugins.reproduce.run.slurm import Request


class FakeSlurm:
    """Answers sbatch with numbers from 100 on, and squeue with the jobs in `queued`."""

    def __init__(self, root):
        self.root, self.queued, self.submitted = root, {}, []

    def run(self, command, **_):
        done = types.SimpleNamespace(returncode=0, stdout="", stderr="")
        if command[0] == "sbatch":
            self.submitted.append(command)
            done.stdout = f"{99 + len(self.submitted)}\n"
        elif command[0] == "squeue":
            lines = [f"{n}|{name}|PENDING|Priority|1:00||{self.root}" for name, n in
                     self.queued.items()]  # fmt: skip
            done.stdout = "\n".join([*lines, "7|of another folder|RUNNING|None|1:00|n1|/elsewhere"])
        return done

    def names(self):
        return [word.partition("=")[2] for command in self.submitted for word in command
                if word.startswith("--job-name")]  # fmt: skip

    def dependency(self, name):
        (command,) = [c for c in self.submitted if f"--job-name={name}" in c]
        (word,) = [word for word in command if word.startswith("--dependency")]
        return word.partition("=")[2]


@pytest.fixture
def cluster(place, monkeypatch):
    fake = FakeSlurm(place)
    own = types.SimpleNamespace(
        run=fake.run, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
    monkeypatch.setattr(slurm, "subprocess", own)
    monkeypatch.setattr(queue, "subprocess", own)
    return fake


def planned(place, table, *rows, gpus=0, attention="vanilla", scale="toy"):
    devices = Devices(gpus, srun=gpus > 0)
    runs = [Run(table, scale, row, attention, 1) for row in rows]
    return [plan_run(place / "configs", run, devices) for run in runs]


def test_what_others_start_from_is_submitted_once_and_first(place, cluster):
    fine = planned(place, "bert_table4", "rope", "none")
    assert slurm.submit(place, [fine], Request()) == 0
    assert cluster.names() == [
        "bert_start-toy-learned-vanilla-s1",
        "bert_continued-toy-rope-vanilla-s1",
        "bert_table4-toy-rope-vanilla-s1",
        "bert_continued-toy-none-vanilla-s1",
        "bert_table4-toy-none-vanilla-s1",
        "bert_table4-toy-render",
    ]
    assert cluster.dependency("bert_start-toy-learned-vanilla-s1") == "singleton"
    assert cluster.dependency("bert_continued-toy-none-vanilla-s1") == "afterok:100,singleton"
    assert cluster.dependency("bert_table4-toy-none-vanilla-s1") == "afterok:103,singleton"
    assert cluster.dependency("bert_table4-toy-render") == "afterany:102:104,singleton"
    assert all("--kill-on-invalid-dep=yes" in command for command in cluster.submitted)
    noted = {one["name"]: one for one in submissions.read(place)}
    assert noted["bert_table4-toy-none-vanilla-s1"]["number"] == 104
    assert noted["bert_table4-toy-none-vanilla-s1"]["after"] == [
        "bert_continued-toy-none-vanilla-s1"
    ]


def test_what_is_in_the_queue_is_said_and_not_submitted_again(place, cluster, capsys):
    both = planned(place, "table2", "base", "rope", attention="linear")
    cluster.queued = {"table2-toy-base-linear-s1": 41}
    assert slurm.submit(place, [both], Request()) == 0
    assert cluster.names() == ["table2-toy-rope-linear-s1", "table2-toy-render"]
    assert "is in the queue already as job 41 (pending)" in capsys.readouterr().out
    # The page waits for that one, too.
    assert cluster.dependency("table2-toy-render") == "afterany:41:100,singleton"
    cluster.queued |= {"table2-toy-rope-linear-s1": 100, "table2-toy-render": 101}
    cluster.submitted.clear()
    assert slurm.submit(place, [both], Request()) == 0
    assert cluster.submitted == []


def test_jobs_of_another_folder_are_not_ours(place, cluster):
    assert queue.read_queue(place) == {}
    cluster.queued = {"a": 3}
    assert queue.read_queue(place)["a"].number == 3


def test_without_slurm_it_is_said(place, monkeypatch, capsys):
    def run(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(queue.subprocess, "run", run)
    assert slurm.submit(place, [planned(place, "table2", "base")], Request()) == 1
    assert "squeue was not found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "gpus", "expected"),
    [
        ("table2", 0, 1),
        ("table2", 1, 1),
        ("table2", 2, 2),
        ("table4", 8, 2),
        ("table8", 8, 1),  # it is measured while it trains
        ("bert_table4", 8, 1),  # several trainings, each measured by itself
    ],
)
def test_many_gpus_do_not_wait_for_an_evaluation(place, table, gpus, expected):
    (one,) = planned(place, table, "rope", gpus=gpus, scale="paper" if gpus else "toy")
    jobs = jobs_of_run(one, force=False)
    assert len(jobs) == expected
    assert jobs[0].gpus == gpus
    if expected == 2:
        assert jobs[1].gpus == 1 and jobs[1].after == (jobs[0].name,)
        assert len(jobs_of_run(one, force=True)) == 1


def test_a_run_that_two_tables_share_is_trained_once(place):
    chain = Chain(lambda one: False, lambda one: False)
    chain.add_all(planned(place, "table2", "lrpe_type2"))
    chain.add_all(planned(place, "table5", "lrpe_type2"))
    first, second = chain.jobs.values()
    assert second.after == (first.name,) and second.gpus == 0
    assert second.words[-2:] == ("--stage", "evaluate")


def test_packed_runs_share_a_node(place):
    rows = planned(place, "table2", "base", "rope", "t5", scale="paper", gpus=1)
    chain = Chain(lambda one: one.run.row == "t5", lambda one: False)
    chain.add_all(rows, packed=8)
    (job,) = chain.jobs.values()
    assert job.gpus == 8 and [run.row for run in job.runs] == ["base", "rope"]
    text = " ".join(job.words)
    assert "--runs base-vanilla-s1,rope-vanilla-s1 --gpus 1 --jobs 8" in text


def test_so_many_run_at_once(place):
    jobs = [Job(str(n), place, ("true",)) for n in range(5)]
    limited = at_most([*jobs, Job("page-render", place, ("true",), finally_after=("0",))], 2)
    assert [job.finally_after for job in limited] == [(), (), ("0",), ("1",), ("2",), ("0",)]


def test_a_checkpoint_that_a_result_lacks_is_made_by_the_first_that_needs_it(place):
    """As in a new clone: the result of the start is there, its checkpoint is not."""
    rows = planned(place, "table3", "rope", scale="toy")
    more = [plan_run(place / "configs", replace(rows[0].run, seed=2), Devices(0))]
    chain = Chain(lambda one: one.run.table == "table8", lambda one: False)
    chain.add_all([*rows, *more])
    first, second = chain.jobs.values()
    assert first.after == second.after == first.finally_after == ()
    assert second.finally_after == (first.name,)


def test_forced_runs_leave_what_they_start_from_alone(place):
    chain = Chain(lambda one: True, lambda one: False, force=True)
    chain.add_all(planned(place, "bert_table4", "rope"))
    forced = {job.name for job in chain.jobs.values() if "--force" in job.words}
    assert forced == {"bert_table4-toy-rope-vanilla-s1"}


def test_options_reach_every_job(place):
    chain = Chain(lambda one: False, lambda one: False, options=("--keep", "best"))
    chain.add_all(planned(place, "bert_table4", "rope"))
    assert all("--keep best" in " ".join(job.words) for job in chain.jobs.values())


def test_a_variable_of_sbatch_is_not_overridden(place, monkeypatch):
    job = Job("a", place, ("true",), gpus=8)
    assert any(word.startswith("--signal") for word in job.sbatch({}))
    monkeypatch.setenv("SBATCH_SIGNAL", "B:USR1@300")
    assert not any(word.startswith("--signal") for word in job.sbatch({}))
    assert "--gpus-per-node=8" in job.sbatch({})
    assert "--nodes=2" in replace(job, gpus=16).sbatch({})


def test_jobs_on_a_cpu_ask_for_memory_unless_the_user_does(place, monkeypatch):
    job = Job("a", place, ("true",), cpus=3)
    assert f"--mem-per-cpu={DEFAULT_MIB}M" in job.sbatch({})
    assert not any(word.startswith("--mem") for word in replace(job, gpus=1).sbatch({}))
    monkeypatch.setenv("SBATCH_MEM_PER_NODE", "9G")
    assert not any(word.startswith("--mem") for word in job.sbatch({}))


def test_a_cut_off_line_of_a_submission_is_left_out(place):
    folder = place / "checkpoints" / "table2" / "toy"
    folder.mkdir(parents=True)
    whole = {"name": "a", "number": 1, "runs": [], "after": []}
    (folder / "jobs.jsonl").write_text(json.dumps(whole) + "\n" + json.dumps(whole)[:9])
    assert [one["name"] for one in submissions.read(place)] == ["a"]
