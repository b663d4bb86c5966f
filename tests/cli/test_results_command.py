"""`fairseq-pe results`: every number of every run once, and a table's cells."""

import csv
import io
import json
import statistics
from pathlib import Path

import pytest

from fairseq_plugins.cli.results import main

ROOT = Path(__file__).resolve().parents[2]


def printed(capsys, *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


@pytest.fixture
def own(capsys) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(printed(capsys, "table5", "--scale", "mini"))))


def test_each_number_is_that_of_its_file(own):
    files = [json.loads(p.read_text()) for p in (ROOT / "results/table5/mini").glob("*.json")]
    assert {(r["row"], r["attention"], int(r["seed"])) for r in own} == {
        (f["row"], f["attention"], f["seed"]) for f in files
    }
    for result in files:
        key = (result["row"], result["attention"], str(result["seed"]))
        found = {r["metric"]: r for r in own if (r["row"], r["attention"], r["seed"]) == key}
        numbers = {k: v for k, v in result["metrics"].items() if isinstance(v, int | float)}
        assert {name: float(one["value"]) for name, one in found.items()} == numbers
        assert {one["commit"] for one in found.values()} == {result["commit"]}


def test_lines_tell_settings_and_code_apart(own):
    path = ROOT / "results/table5/mini"
    files = {p.stem: json.loads(p.read_text()) for p in path.glob("*.json")}
    for line in own:
        result = files["{row}-{attention}-s{seed}".format(**line)]
        assert line["recipe"] == result["config"]["recipe"]
        assert line["sources"] == result.get("sources", "") and line["settings"] == ""


def test_a_table_given_twice_counts_once(own, capsys):
    text = printed(capsys, "table5", "table5", "--scale", "mini")
    assert list(csv.DictReader(io.StringIO(text))) == own


def test_json_has_the_same_lines(own, capsys):
    found = json.loads(printed(capsys, "table5", "--scale", "mini", "--format", "json"))
    assert [{k: str(v) for k, v in line.items() if k != "value"} for line in found] == [
        {k: v for k, v in line.items() if k != "value"} for line in own
    ]


@pytest.mark.parametrize("kind", ["markdown", "latex"])
def test_cells_are_means_over_seeds(own, capsys, kind):
    text = printed(capsys, "table5", "--format", kind)
    row = "lrpe_identity"
    values = [
        float(r["value"])
        for r in own
        if (r["row"], r["attention"], r["metric"]) == (row, "linear", "test_ppl")
    ]
    (line,) = (one for one in text.splitlines() if row in one.replace("\\", ""))
    assert f"{statistics.mean(values):.2f}" in line
    note = text.splitlines()[-1]
    assert "LRPE, Table 5, scale mini: means over seeds" in note
    assert "95 % intervals; n: seeds under linear/vanilla attention." in note
    assert note.startswith("% ") == (kind == "latex")


def test_a_table_without_mini_has_the_cells_of_its_scale(capsys):
    assert main(["bert_table4", "--format", "markdown"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "--scale published\n"
    assert shown.out == printed(
        capsys, "bert_table4", "--format", "markdown", "--scale", "published"
    )


def test_a_file_is_written_whole(tmp_path, capsys):
    target = tmp_path / "own" / "results.csv"
    assert printed(capsys, "table5", "--output", str(target)) == f"written: {target}\n"
    assert target.read_text().startswith("paper,table,scale,study,row,attention,seed,metric,value")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "TABLE must be one of"),
        (["--format", "latex"], "needs one TABLE"),
        (["table5", "--scale", "paper"], "must be those of a result"),
    ],
)
def test_bad_choices_are_refused(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_full_disk_is_an_error_with_its_path(capsys):
    assert main(["table5", "--scale", "mini", "--output", "/dev/full"]) == 1
    shown = capsys.readouterr()
    assert "/dev/full" in shown.err and not shown.out
