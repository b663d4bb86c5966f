"""A rehearsal of scale paper: models as large as counted by hand, settings as in Table 7."""

from pathlib import Path

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import rehearsal
from fairseq_plugins.runner.launcher import ProcessLauncher
from fairseq_plugins.runner.rehearsed_training import KINDS, fill_dictionary, train
from tests.integration import toy_repository as toy

REPOSITORY = Path(__file__).resolve().parents[2]
VOCABULARY = 267_744


def planned(row: str, attention: str = "vanilla", table: str = "table2"):
    return plan_run(REPOSITORY / "configs", Run(table, "paper", row, attention, 1), Devices(8))


def test_a_model_of_table_2_has_the_parameters_that_one_counts_by_hand(tmp_path):
    layer = 4 * 512 * 513 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512  # with biases and norms
    expected = VOCABULARY * 512 + 6 * layer + 2 * 512  # and the norm at the end
    one = rehearsal.rehearse(tmp_path, planned("base"), 40)
    assert (one.parameters, one.tokens, one.problem) == (expected, 128 * 512, "")
    rope = rehearsal.rehearse(tmp_path, planned("rope", "linear"), 40)
    assert rope.parameters == expected
    assert rope.memory < one.memory and rope.gpu_hours < one.gpu_hours
    assert expected * 20 < one.memory < 2 * expected * 20


def test_the_recipe_has_the_settings_of_table_7():
    training = planned("base").trainings[0]
    lines = rehearsal.compare_with_table_7("wikitext103_lm", training, VOCABULARY)
    assert [line for line in lines if line[-1]] == []
    other = rehearsal.compare_with_table_7("wikitext103_lm", training, 1000)
    assert [line[0] for line in other if line[-1]] == ["`vocabulary`"]


def test_a_model_that_cannot_be_built_is_named_on_the_page(tmp_path, monkeypatch):
    def refuse(*_):
        raise ValueError("`width` must be another one")

    monkeypatch.setattr(rehearsal, "build_on_meta", refuse)
    found = rehearsal.rehearse(tmp_path, planned("base"), 40)
    text = rehearsal.page({TABLE_2.name: [found]}, {}, 40)
    assert "`base` under vanilla: ValueError: `width` must be another one" in text


def test_a_dictionary_is_filled_behind_its_own_entries(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a 3\nb 2\n")
    fill_dictionary(path, 5)
    lines = path.read_text().splitlines()
    assert lines[:2] == ["a 3", "b 2"] and len({line.split()[0] for line in lines}) == 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_each_kind_trains_goes_on_in_two_processes_and_is_evaluated(kind, tmp_path):
    root = toy.make_repository(tmp_path / "root", {}, ())
    took = train(root, kind, launcher=ProcessLauncher(root, {"PYTHONPATH": str(root)}), scale="toy")
    assert f"{kind}: 2 updates" in took and "another update from it in 2 processes" in took
    assert not (root / "checkpoints" / "rehearsal" / kind).exists()
