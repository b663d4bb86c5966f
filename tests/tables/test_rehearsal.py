"""A rehearsal of scale paper: models as large as counted by hand, settings as in Table 7."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

from fairseq_plugins.common import memory
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner import rehearsal
from fairseq_plugins.runner.launcher import ProcessLauncher
from fairseq_plugins.runner.rehearsed_training import (
    fill_dictionary,
    find_corpus,
    plan,
    take_part,
    train,
)
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


def make_corpus(folder: Path, lines: int = 700) -> None:
    """Make a prepared translation folder whose sentences are all alike."""
    (folder / "raw").mkdir(parents=True)
    (folder / "data.json").write_text("{}")
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("a 2\n")
        (folder / "raw" / f"test.{language}").write_text("a\n" * lines)
        for split in ("train", "test"):
            stem = folder / f"{split}.en-de.{language}"
            builder = MMapIndexedDatasetBuilder(f"{stem}.bin", dtype=np.uint16)
            for _ in range(lines):
                builder.add_item(torch.tensor([4, 2]))
            builder.finalize(f"{stem}.idx")


def test_a_part_of_a_corpus_has_the_first_lines_of_each_split(tmp_path):
    make_corpus(tmp_path / "data" / "mid-en-de")
    take_part(tmp_path / "data" / "mid-en-de", tmp_path / "part")
    for split, lines in (("train", 600), ("test", 20)):
        check_split(tmp_path / "part" / f"{split}.en-de.de", symbols=5)
        found = MMapIndexedDataset(str(tmp_path / "part" / f"{split}.en-de.de"))
        assert len(found) == lines and found[lines - 1].tolist() == [4, 2]
    assert (tmp_path / "part/raw/test.de").read_text() == "a\n" * 20
    assert (tmp_path / "part/data.json").is_file()  # which names the languages


def test_the_papers_corpus_is_taken_where_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_PE_DATA", str(tmp_path))
    assert find_corpus(tmp_path, "lm") is None
    for name in ("wikitext-2", "wikitext-103"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.json").write_text("{}")
        assert find_corpus(tmp_path, "lm") == tmp_path / name


@pytest.mark.parametrize(
    ("free", "asked", "found"),
    [(100, None, 8), (20, None, 4), (20, 8, 8), (20, 3, 3), (None, None, 8)],
)
def test_as_many_processes_as_fit_into_the_memory(free, asked, found, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: free and free * rehearsal.GIB)
    monkeypatch.setattr(memory, "free_swap", lambda: 14 * rehearsal.GIB)  # for what is asked
    planned_here = plan(REPOSITORY, "lm", asked)
    assert planned_here.processes == found and 3.9 < planned_here.memory / rehearsal.GIB < 4.2


@pytest.mark.parametrize(
    ("free", "asked", "message"),
    [
        (20, 8, r"--processes must be at most 4 for lm, since each takes some 4\.. GiB and 20\.0"),
        (5, None, r"--processes must be at most 1 for lm, .* but is 2"),
        (20, 9, "--processes must be from 2 to 8, but is 9"),
    ],
)
def test_processes_that_do_not_fit_are_refused(free, asked, message, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: free * rehearsal.GIB)
    monkeypatch.setattr(memory, "free_swap", lambda: 0)
    with pytest.raises(OptionError, match=message):
        plan(REPOSITORY, "lm", asked)


@pytest.mark.slow
@pytest.mark.timeout(900)  # each of its processes imports fairseq
@pytest.mark.parametrize(("kind", "processes"), [("lm", 4), ("mlm", 2), ("mt", 2)])
@pytest.mark.parametrize("text", ["generated", "prepared"])
def test_a_model_of_each_kind_trains_resumes_in_fewer_processes_and_is_evaluated(
    kind, processes, text, tmp_path
):
    data = {"lm": toy.LM, "mlm": toy.MLM, "mt": toy.MT}[kind]
    root = toy.make_repository(tmp_path / "root", {}, [] if text == "generated" else [data])
    planned_here = plan(root, kind, processes, scale="toy")
    if text == "prepared":
        planned_here = replace(planned_here, corpus=Path(data[data.index("--output") + 1]))
    took = train(root, planned_here, ProcessLauncher(root, {"PYTHONPATH": str(root)}))
    assert f"{kind}: 2 updates" in took and f"in {processes} processes with at most" in took
    fewer = "2 processes" if processes == 4 else "one process"
    assert f"another update from it in {fewer}" in took
    assert ("the first lines of toy" if text == "prepared" else "generated text") in took
    assert not (root / "checkpoints" / "rehearsal" / kind).exists()
