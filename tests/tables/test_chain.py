"""Which jobs runs become, what waits for what, and what is submitted."""

import json
from dataclasses import replace

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import slurm_queue, slurm_submission
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.slurm_job import DEFAULT_MIB, Job, jobs_of
from fairseq_plugins.runner.slurm_submission import DependentJobs, at_most
from tests.tables.fake_slurm import planned


def test_what_others_start_from_is_submitted_once_and_first(place, cluster):
    fine = planned(place, "bert_table4", "rope", "none")
    assert slurm_submission.submit(place, [fine], RunOptions()) == 0
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
    noted = {one["name"]: one for one in slurm_queue.read_submissions(place)}
    assert noted["bert_table4-toy-none-vanilla-s1"]["number"] == 104
    assert noted["bert_table4-toy-none-vanilla-s1"]["after"] == [
        "bert_continued-toy-none-vanilla-s1"
    ]


def test_what_is_in_the_queue_is_said_and_not_submitted_again(place, cluster, capsys):
    both = planned(place, "table2", "base", "rope", attention="linear")
    cluster.queued = {"table2-toy-base-linear-s1": 41}
    assert slurm_submission.submit(place, [both], RunOptions()) == 0
    assert cluster.names() == ["table2-toy-rope-linear-s1", "table2-toy-render"]
    assert "is in the queue already as job 41 (pending)" in capsys.readouterr().out
    # The page waits for that one, too.
    assert cluster.dependency("table2-toy-render") == "afterany:41:100,singleton"
    cluster.queued |= {"table2-toy-rope-linear-s1": 100, "table2-toy-render": 101}
    cluster.submitted.clear()
    assert slurm_submission.submit(place, [both], RunOptions()) == 0
    assert cluster.submitted == []


def test_jobs_of_another_folder_are_not_ours(place, cluster):
    assert slurm_queue.read_queue(place) == {}
    cluster.queued = {"a": 3}
    assert slurm_queue.read_queue(place)["a"].number == 3


def test_without_slurm_it_is_said(place, monkeypatch, capsys):
    def run(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(slurm_queue.subprocess, "run", run)
    assert slurm_submission.submit(place, [planned(place, "table2", "base")], RunOptions()) == 1
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
    jobs = jobs_of([one])
    assert len(jobs) == expected
    assert jobs[0].gpus == gpus
    if expected == 2:
        assert jobs[1].gpus == 1 and jobs[1].after == (jobs[0].name,)
        assert len(jobs_of([one], again="--force")) == 1


def test_a_run_that_two_tables_share_is_trained_once(place):
    chain = DependentJobs(place, RunOptions())
    chain.add_all(planned(place, "table2", "lrpe_type2"))
    chain.add_all(planned(place, "table5", "lrpe_type2"))
    first, second = chain.jobs.values()
    assert second.after == (first.name,) and second.gpus == 0
    assert second.stage == "take"


@pytest.fixture
def recorded(monkeypatch):
    """The rows and tables whose runs have results."""
    found = set()
    monkeypatch.setattr(
        slurm_submission,
        "is_recorded",
        lambda root, one: bool({one.run.row, one.run.table} & found),
    )
    return found


def test_packed_runs_share_a_node(place, recorded):
    rows = planned(place, "table2", "base", "rope", "t5", scale="paper", gpus=1)
    recorded.add("t5")
    chain = DependentJobs(place, RunOptions(jobs=8))
    chain.add_all(rows)
    (job,) = chain.jobs.values()
    assert job.gpus == 2 and [run.row for run in job.runs] == ["base", "rope"]
    text = " ".join(job.words)
    assert "--runs base-vanilla-s1,rope-vanilla-s1 --gpus 1 --jobs 2" in text


def test_a_pack_trains_no_run_that_another_table_trains(place):
    chain = DependentJobs(place, RunOptions(jobs=3))
    chain.add_all(planned(place, "table2", "lrpe_type2", "lrpe_type6"))
    chain.add_all(planned(place, "table5", "lrpe_type2", "lrpe_type6", "lrpe_identity"))
    trained = [run.row for job in chain.jobs.values() if job.stage == "all" for run in job.runs]
    assert sorted(trained) == ["lrpe_identity", "lrpe_type2", "lrpe_type6"]
    pack = "table2-toy-lrpe_type2-vanilla-s1-and-1-more"
    takes = [job for job in chain.jobs.values() if job.stage == "take"]
    assert [job.finally_after for job in takes] == [(pack,)] * 2
    assert all(job.after == () for job in takes)


def test_a_bad_row_of_a_pack_cancels_no_child_of_the_others(place):
    """Who waits for a pack, or is one, begins however it ends, and looks for its own parent."""
    rows = ("base", "rope", "spe")
    for first, second in ((3, 1), (3, 3), (1, 3)):
        chain = DependentJobs(place, RunOptions(jobs=first))
        chain.add_all(planned(place, "table8", *rows))
        parents = {job.name for job in chain.jobs.values()}
        chain.options = RunOptions(jobs=second)
        chain.add_all(planned(place, "table3", *rows))
        children = [job for job in chain.jobs.values() if job.name not in parents]
        assert {run.table for job in children for run in job.runs} == {"table3"}
        assert all(job.after == () for job in children)
        assert {name for job in children for name in job.finally_after} == parents


def test_packs_wait_for_the_job_that_makes_a_lacking_checkpoint(place, recorded):
    seeds = planned(place, "table3", "rope") * 4
    seeds = [
        plan_run(place / "configs", replace(one.run, seed=seed), Devices(0))
        for seed, one in enumerate(seeds, 1)
    ]
    recorded.add("table8")
    chain = DependentJobs(place, RunOptions(jobs=2))
    chain.add_all(seeds)
    start, first, second = chain.jobs.values()
    assert [run.table for run in start.runs] == ["table8"]
    assert first.finally_after == second.finally_after == (start.name,)


def test_so_many_run_at_once(place):
    runs = (Run("table2", "toy", "base", "linear", 1),)
    jobs = [Job(str(n), place, ("true",), runs=runs) for n in range(5)]
    taking = Job("taking", place, ("true", "--stage", "take"), runs=runs)
    page = Job("page-render", place, ("true",), finally_after=("0",))
    limited = at_most([taking, *jobs, page], 2)
    assert [job.finally_after for job in limited] == [(), (), (), ("0",), ("1",), ("2",), ("0",)]


def test_a_checkpoint_that_a_result_lacks_is_made_by_one_job_before_all(place, recorded):
    """As in a new clone: the result of the start is there, its checkpoint is not."""
    rows = planned(place, "table3", "rope", scale="toy", gpus=2)
    more = [plan_run(place / "configs", replace(rows[0].run, seed=2), rows[0].devices)]
    recorded.add("table8")
    chain = DependentJobs(place, RunOptions())
    chain.add_all([*rows, *more])
    start, *children = chain.jobs.values()
    assert start.after == start.finally_after == ()
    # The result stays, and so no other job measures this training.
    assert start.words[-1] == "--missing-checkpoints" and start.stage == "all"
    assert len(children) == 2 and all(job.after == (start.name,) for job in children)
    assert all(job.finally_after == () for job in children)


def test_forced_runs_leave_what_they_start_from_alone(place, recorded):
    recorded |= {"bert_table4", "bert_continued", "bert_start"}
    chain = DependentJobs(place, RunOptions(force=True))
    chain.add_all(planned(place, "bert_table4", "rope"))
    forced = {job.name for job in chain.jobs.values() if "--force" in job.words}
    assert forced == {"bert_table4-toy-rope-vanilla-s1"}


def test_options_reach_every_job(place):
    chain = DependentJobs(place, RunOptions(keep="best"))
    chain.add_all(planned(place, "bert_table4", "rope"))
    assert all("--keep best" in " ".join(job.words) for job in chain.jobs.values())


def test_a_variable_of_sbatch_is_not_overridden(place, monkeypatch):
    job = Job("a", place, ("true", "--srun"), gpus=8)
    assert any(word.startswith("--signal") for word in job.sbatch({}))
    monkeypatch.setenv("SBATCH_SIGNAL", "B:USR1@300")
    assert not any(word.startswith("--signal") for word in job.sbatch({}))
    assert "--gpus-per-node=8" in job.sbatch({})
    assert "--nodes=2" in replace(job, gpus=16).sbatch({})


def test_what_would_end_at_the_signal_is_not_sent_it(place, cluster):
    slurm_submission.submit(place, [planned(place, "table2", "base")], RunOptions())
    run, page = cluster.submitted
    assert "--signal=B:USR1@120" in run and not any(w.startswith("--signal") for w in page)


def test_jobs_on_a_cpu_ask_for_memory_unless_the_user_does(place, monkeypatch):
    job = Job("a", place, ("true",))
    assert f"--mem-per-cpu={DEFAULT_MIB}M" in job.sbatch({})
    assert not any(word.startswith("--mem") for word in replace(job, gpus=1).sbatch({}))
    monkeypatch.setenv("SBATCH_MEM_PER_NODE", "9G")
    assert not any(word.startswith("--mem") for word in job.sbatch({}))


def test_a_cut_off_line_of_a_submission_is_left_out(place):
    folder = place / "checkpoints" / "table2" / "toy"
    folder.mkdir(parents=True)
    whole = {"name": "a", "number": 1, "runs": [], "after": []}
    (folder / "jobs.jsonl").write_text(json.dumps(whole) + "\n" + json.dumps(whole)[:9])
    assert [one["name"] for one in slurm_queue.read_submissions(place)] == ["a"]
    slurm_queue.note_submission(place, folder, {**whole, "name": "b"})
    assert [one["name"] for one in slurm_queue.read_submissions(place)] == ["a", "b"]
