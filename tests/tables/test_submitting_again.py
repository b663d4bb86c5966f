"""What is in the queue is not submitted again, however it was cut into jobs."""

from dataclasses import replace

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Study
from fairseq_plugins.runner import slurm_queue, slurm_submission
from fairseq_plugins.runner.run_options import RunOptions
from tests.tables.fake_slurm import planned

ROWS = ("base", "rope", "lrpe_type1", "lrpe_type2")
PACKS = ["table2-toy-base-vanilla-s1-and-1-more", "table2-toy-lrpe_type1-vanilla-s1-and-1-more"]


@pytest.fixture
def done(monkeypatch):
    """The names of runs that are taken for done."""
    names = set()
    monkeypatch.setattr(slurm_submission, "is_recorded", lambda root, one: one.run.name in names)
    return names


def test_packs_are_not_cut_anew_while_they_wait(place, cluster, done, capsys):
    rows = planned(place, "table2", *ROWS)
    assert slurm_submission.submit(place, [rows], RunOptions(jobs=2)) == 0
    assert cluster.names() == [*PACKS, "table2-toy-render"]
    cluster.keep()
    done.add("base-vanilla-s1")
    capsys.readouterr()
    for packed in (2, 1, 4):
        assert slurm_submission.submit(place, [rows], RunOptions(jobs=packed)) == 0
        assert cluster.submitted == []
        said = capsys.readouterr().out
        assert "base-vanilla-s1: done already" in said
        for name, number, pack in (
            ("rope", 100, PACKS[0]),
            ("lrpe_type1", 101, PACKS[1]),
            ("lrpe_type2", 101, PACKS[1]),
        ):
            told = f"is in the queue already as job {number} (pending), {pack}\n"
            assert f"table2-toy-{name}-vanilla-s1: {told}" in said


def test_single_jobs_are_not_packed_while_they_wait(place, cluster):
    rows = planned(place, "table2", *ROWS)
    assert slurm_submission.submit(place, [rows[:2]], RunOptions()) == 0
    cluster.keep()
    assert slurm_submission.submit(place, [rows], RunOptions(jobs=4)) == 0
    assert cluster.names() == [PACKS[1], "table2-toy-render"]
    # The page waits for what was in the queue, too.
    assert cluster.dependency("table2-toy-render") == "afterany:103:100:101,singleton"


def test_what_left_the_queue_undone_is_packed_again(place, cluster):
    rows = planned(place, "table2", *ROWS)
    slurm_submission.submit(place, [rows], RunOptions(jobs=2))
    cluster.keep()
    del cluster.queued[PACKS[0]]
    assert slurm_submission.submit(place, [rows], RunOptions(jobs=4)) == 0
    assert cluster.names() == [PACKS[0], "table2-toy-render"]


def test_an_evaluation_alone_is_submitted_after_its_training_in_the_queue(place, cluster):
    rows = planned(place, "table2", "base", gpus=2)
    slurm_submission.submit(place, [rows], RunOptions())
    names = ["table2-toy-base-vanilla-s1", "table2-toy-base-vanilla-s1-evaluate"]
    assert cluster.names() == [*names, "table2-toy-render"]
    cluster.keep()
    cluster.queued = {names[0]: 100}
    slurm_submission.submit(place, [rows], RunOptions(jobs=4))
    assert cluster.names() == [names[1], "table2-toy-render"]
    assert cluster.dependency(names[1]) == "afterok:100,singleton"


def test_a_run_that_another_table_has_in_the_queue_is_waited_for(place, cluster):
    slurm_submission.submit(
        place, [planned(place, "table2", "base", "lrpe_type2")], RunOptions(jobs=2)
    )
    cluster.keep()
    slurm_submission.submit(
        place, [planned(place, "table5", "lrpe_type2", "lrpe_identity")], RunOptions()
    )
    name = "table5-toy-lrpe_type2-vanilla-s1"
    (job,) = (one for one in slurm_queue.read_submissions(place) if one["name"] == name)
    assert job["stage"] == "take"
    # A pack also ends badly where another run of it fails.
    assert cluster.dependency(name) == "afterany:100,singleton"
    assert cluster.dependency("table5-toy-lrpe_identity-vanilla-s1") == "singleton"


def test_children_wait_for_parents_that_an_earlier_submission_made(place, cluster):
    slurm_submission.submit(place, [planned(place, "table8", "rope")], RunOptions())
    cluster.keep()
    slurm_submission.submit(place, [planned(place, "table3", "rope")], RunOptions())
    assert cluster.names() == ["table3-toy-rope-vanilla-s1", "table3-toy-render"]
    assert cluster.dependency("table3-toy-rope-vanilla-s1") == "afterok:100,singleton"


def test_a_refused_job_says_what_was_submitted_and_the_same_command_goes_on(place, cluster, capsys):
    rows = planned(place, "table2", "base", "rope", "t5")
    cluster.refused = ("table2-toy-rope-vanilla-s1",)
    assert slurm_submission.submit(place, [rows], RunOptions()) == 1
    said = capsys.readouterr().out
    assert "Submitted: table2-toy-base-vanilla-s1\n" in said
    left = "table2-toy-rope-vanilla-s1, table2-toy-t5-vanilla-s1, table2-toy-render"
    assert f"Not submitted: {left}. The same command goes on with these." in said
    cluster.keep()
    cluster.refused = ()
    assert slurm_submission.submit(place, [rows], RunOptions()) == 0
    assert cluster.names() == left.split(", ")


@pytest.mark.parametrize("answer", ["Project 7: 30 hours left\n--> account ok\n{}\n", "{};gpus\n"])
def test_the_number_of_a_job_is_found_in_what_a_site_prints(place, cluster, answer):
    cluster.answer = answer
    assert slurm_submission.submit(place, [planned(place, "table2", "base")], RunOptions()) == 0
    assert cluster.dependency("table2-toy-render") == "afterany:100,singleton"


def test_an_answer_without_a_number_is_said(place, cluster, capsys):
    cluster.answer = "maintenance until 12:00\n"
    assert slurm_submission.submit(place, [planned(place, "table2", "base")], RunOptions()) == 1
    said = capsys.readouterr().out
    assert "must print the number of the job, but printed 'maintenance until 12:00" in said
    assert "The same command goes on with these." in said


def test_a_page_alone_that_was_refused_is_submitted(place, cluster):
    rows = planned(place, "table2", "base")
    cluster.refused = ("table2-toy-render",)
    assert slurm_submission.submit(place, [rows], RunOptions()) == 1
    cluster.keep()
    cluster.refused = ()
    assert slurm_submission.submit(place, [rows], RunOptions()) == 0
    assert cluster.names() == ["table2-toy-render"]
    assert cluster.dependency("table2-toy-render") == "afterany:100,singleton"


def test_studies_of_one_name_do_not_share_a_run_by_what_is_noted(place, cluster):
    """Their settings may differ."""

    def own(table, updates):
        (one,) = planned(place, table, "lrpe_type2")
        study = Study("own", (f"optimization.max_update={updates}",))
        return [plan_run(place / "configs", replace(one.run, study=study), Devices(0))]

    slurm_submission.submit(place, [own("table2", 5)], RunOptions())
    cluster.keep()
    slurm_submission.submit(place, [own("table5", 9)], RunOptions())
    assert cluster.dependency("table5-own-lrpe_type2-vanilla-s1") == "singleton"
