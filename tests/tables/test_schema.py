"""Results that were damaged or edited by hand are named, left out, and never stop a page."""

import copy
import json
import math
import random
import re
from pathlib import Path

import pytest

from fairseq_plugins.experiments import EXPERIMENTS, experiment_of
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records import results
from fairseq_plugins.records.metrics import perplexity
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.report.page import Report
from fairseq_plugins.report.render import render
from fairseq_plugins.statistics.judged import JudgedTable
from tests.quick import first_of_each_kind

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted(
    path for table in TABLES for path in (ROOT / "results" / table).rglob("*-s[0-9]*.json")
)
NAME = "results/table2/mini/rope-linear-s1.json"


def read(root, text, name=NAME):
    """What is read from a file with that text, and what is said of it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    said = []
    return results.read_result(path, LANGUAGE_MODEL.metrics, said.append), " ".join(said)


def test_every_committed_result_can_be_read():
    said = []
    for path in COMMITTED:
        assert results.read_result(path, experiment_of(path.parts[-3]).metrics, said.append)
    assert said == []
    assert len(COMMITTED) > 200


def test_a_file_that_is_not_there_is_not_said(tmp_path):
    said = []
    missing = results.read_result(tmp_path / NAME, LANGUAGE_MODEL.metrics, said.append)
    assert missing is None and said == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "should be a valid dictionary"),
        ('{"table": ', "EOF"),
        ("[" * 200_000 + "]" * 200_000, "recursion limit"),
        ('{"seed": NaN}', "expected value"),
        ("\0", "expected value"),
    ],
    ids=["a list", "cut off", "nested", "nan", "zeros"],
)
def test_what_is_no_object_is_no_result(tmp_path, text, reason):
    result, said = read(tmp_path, text)
    assert result is None
    assert NAME in said and reason in said


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("metrics", None, "metrics: Input should be a valid dictionary"),
        ("metrics.valid_ppl", "86.5", "metrics.valid_ppl: Input should be a valid number"),
        ("metrics.valid_ppl", None, "metrics.valid_ppl: Input should be a valid number"),
        ("metrics.valid_ppl", True, "metrics.valid_ppl: Input should be a valid number"),
        ("metrics.valid_ppl", -3.0, "greater than or equal to 1, but is -3.0"),
        ("metrics.valid_ppl", 90.0, "valid_ppl is 90.0, but 2 to the power of valid_loss"),
        ("metrics.test_loss", 6.0, "test_ppl is 80.0, but 2 to the power of test_loss 6.0 is 64.0"),
        ("metrics.train_seconds", -1.0, "metrics.train_seconds: "),
        ("metrics.parameters", 1.5, "metrics.parameters: "),
        ("metrics.valid_ppl_context_400", "x", "metrics.valid_ppl_context_400: "),
        ("config", "x", "config: "),
        ("config.optimization.lr", None, "config.optimization.lr: "),
        ("config.dataset.batch_size", 0, "config.dataset.batch_size: "),
        ("data.splits.train.words", "many", "data.splits.train.words: "),
        ("hardware.gpus", 2, "hardware.gpus: "),
        ("versions.torch", None, "versions.torch: "),
        ("seed", True, "seed: "),
        ("seed", 2, "it is the result results/table2/mini/rope-linear-s2.json"),
        ("row", "base", "it is the result results/table2/mini/base-linear-s1.json"),
        ("commit", "main", "commit: "),
        ("finished_at", "yesterday", "finished_at: "),
        ("remark", "fine", "remark: this version knows no such key"),
    ],
)
def test_what_stands_where_it_cannot_is_named(tmp_path, make_result, place, value, reason):
    result = copy.deepcopy(make_result("rope", "linear", 1, 80.0))
    *tables, key = place.split(".")
    table = result
    for name in tables:
        table = table[name]
    table[key] = value
    found, said = read(tmp_path, json.dumps(result))
    assert found is None
    assert NAME in said and reason in said


@pytest.mark.parametrize("key", ["commit", "metrics", "versions"])
def test_a_key_that_is_missing_is_named(tmp_path, make_result, key):
    result = {k: v for k, v in make_result("rope", "linear", 1, 80.0).items() if k != key}
    found, said = read(tmp_path, json.dumps(result))
    assert found is None and f"{key}: Field required" in said


def test_a_copy_under_another_name_is_no_second_seed(tmp_path, make_result):
    text = json.dumps(make_result("rope", "linear", 1, 80.0))
    assert read(tmp_path, text)[0]
    assert read(tmp_path, text, NAME.replace("s1", "s1 copy"))[0] is None


def test_a_perplexity_is_two_to_the_loss_or_none():
    assert perplexity(6.1) == round(2**6.1, 4)
    for loss in (math.nan, math.inf, -1.0, 1e5):
        with pytest.raises(ValueError, match="a loss must be from 0 to 1000 bits"):
            perplexity(loss)


def test_the_page_names_bad_files_and_shows_the_others(root, make_result, capsys, monkeypatch):
    folder = root / "results/table2/mini"
    folder.mkdir(parents=True)
    monkeypatch.setattr(Report, "_mismatch", lambda *_: "")  # of another experiment
    for row, text in {
        "base": json.dumps(make_result("base", "linear", 1, 90.0)),
        "rope": "[" * 200_000,
        "spe": json.dumps({**make_result("spe", "linear", 1, 80.0), "metrics": "none"}),
        "per": json.dumps(make_result("per", "linear", 1, 80.0)).replace("80.0,", "NaN,", 1),
    }.items():
        (folder / f"{row}-linear-s1.json").write_text(text)
    report = Report(root, TABLE_2, EXPERIMENTS["lm"].scales["mini"])
    report.write()
    page = (root / report.page).read_text()
    assert "90.00 (1)" in page and "nan" not in page.lower()
    for row in ("rope", "spe", "per"):
        assert f"Left out: results/table2/mini/{row}-linear-s1.json is not a complete" in page


def places(value, path=()):
    """Where in a result anything stands, tables and lists themselves too."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


@pytest.mark.parametrize(
    "table",
    first_of_each_kind(
        sorted({path.parts[-3] for path in COMMITTED}),
        lambda table: TABLES[table].experiment,
        lambda table: table,
    ),
)
def test_whatever_is_changed_in_a_result_its_page_is_made(tmp_path, table):
    """A sample of places, each with what cannot stand there; each is left out or shown."""
    path = next(path for path in COMMITTED if path.parts[-3] == table)
    original = read_content(path)
    schema, shown, scale = experiment_of(table).metrics, 0, path.parts[-2]
    draw = random.Random(0)
    for place in draw.sample(sorted(places(original), key=str), 120):
        changed = copy.deepcopy(original)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = draw.choice([None, "word", -3.0, True, [], {}, 10**400, "__remove__"])
        if inner[place[-1]] == "__remove__":
            del inner[place[-1]]
        try:
            results.check_result(changed, schema)
        except ValueError:
            continue
        if not results.mismatch(changed, results.run_of(changed), original["config"], None):
            for shown_runs in ([changed], [original, changed]):
                judged = JudgedTable.of(TABLES[table].at(scale), shown_runs)
                assert render(judged, scale).markdown()
            shown += 1
    assert 0 < shown < 120


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("commit",), "release <img src=x onerror=alert(1)>"),
        (("commit",), "release <script>"),
        (("hardware", "cpu"), "<b>fast</b>"),
        (("hardware", "gpus"), ["<!-- a -->"]),
        (("versions", "torch"), "2 </td>"),
        (("command",), ["fairseq-train", "<SCRIPT SRC=x>"]),
        (("data", "request"), {"<i>": 1}),
    ],
)
def test_markup_is_text_on_a_page_wherever_it_stands(root, make_result, monkeypatch, keys, value):
    """Pages are Markdown, which passes HTML on; a commit has no place for any."""
    monkeypatch.setattr(Report, "_mismatch", lambda *_: "")
    result = make_result("base", "linear", 1, 90.0)
    inner = result
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    folder = root / "results/table2/mini"
    folder.mkdir(parents=True)
    (folder / "base-linear-s1.json").write_text(json.dumps(result))
    report = Report(root, TABLE_2, EXPERIMENTS["lm"].scales["mini"])
    shown, left_out = report.read().shown, report.read().left_out
    assert (shown, len(left_out)) == ([], 1) if keys == ("commit",) else len(shown) == 1
    report.write()
    page = (root / report.page).read_text()
    own = r"</?(?:details|summary)>"  # of the page itself
    assert not re.search(r"<[A-Za-z/!?]", re.sub(own, "", page))
