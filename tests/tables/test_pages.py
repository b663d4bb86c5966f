"""All pages at once, of the results that there are."""

import json
import shutil

import pytest

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.lrpe import TABLE_5
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.report.claims_page import PAGE
from fairseq_plugins.report.page import Report

ROW, STUDY = "lrpe_type2-linear-s1.json", "mine"


@pytest.fixture
def copied(root):
    """A folder with results of two tables and of a study, as from another machine; no pages."""
    for table in ("translation_lengths", "table5"):
        shutil.copytree(ROOT / "results" / table / "mini", root / "results" / table / "mini")
    result = read_content(root / "results" / "table5" / "mini" / ROW)
    study = {"name": STUDY, "overrides": ["optimization.max_update=7"], "data": None}
    own = root / "results" / "table5" / STUDY
    own.mkdir()
    (own / ROW).write_text(json.dumps({**result, "study": study}))
    return root


def test_every_table_and_study_gets_its_page(copied, capsys):
    assert main(["pages"], copied) == 0
    pages = copied / "results"
    made = ["translation_lengths/mini.md", f"table5/{STUDY}.md", "table5/mini.md", f"{PAGE}.md"]
    printed = capsys.readouterr().out
    for page in made:
        assert page in printed
        assert (pages / page).is_file()
    for drawn in ("table5/mini.png", "table5/mini.svg", "translation_lengths/mini.png"):
        assert (pages / drawn).is_file()


def test_a_page_is_the_same_as_of_its_tables_own_command(copied):
    assert main(["pages"], copied) == 0
    page = copied / "results" / "table5" / "mini.md"
    at_once = page.read_text()
    page.unlink()
    assert main(["table5", "--scale", "mini", "--render"], copied) == 0
    assert page.read_text() == at_once


def test_a_page_has_the_results_that_came_while_it_was_made(copied, monkeypatch):
    """As another call of the same table writes them, whose page this one takes the place of."""
    report = Report(copied, TABLE_5, EXPERIMENTS["lm"].scales["mini"])
    late = copied / report.folder / ROW
    content, draw, drawn = late.read_bytes(), Report._draw, []
    late.unlink()

    def draw_as_another_ends(self, shown):
        drawn.append(len(shown))
        draw(self, shown)
        if not late.exists():
            late.write_bytes(content)

    monkeypatch.setattr(Report, "_draw", draw_as_another_ends)
    report.make()
    assert drawn == [drawn[0], drawn[0] + 1]
    at_once = (copied / report.page).read_bytes()
    report.make()
    assert (copied / report.page).read_bytes() == at_once


def test_what_was_trained_again_has_figures_of_its_own(copied):
    published = copied / "results" / "table5" / "mini"
    own = copied / "results" / "local" / "table5" / "mini"
    own.mkdir(parents=True)
    result = read_content(published / ROW)
    metrics = {**result["metrics"], "test_ppl": 8.0, "test_loss": 3.0}
    (own / ROW).write_text(json.dumps({**result, "metrics": metrics}))
    assert main(["pages"], copied) == 0
    theirs, mine = (
        json.loads(folder.with_suffix(".json").read_bytes())["rows"][ROW.removesuffix("-s1.json")]
        for folder in (published, own)
    )
    assert mine["mean"] == 8.0 != theirs["mean"] and own.with_suffix(".png").is_file()


def test_what_is_left_out_is_said(copied, capsys):
    damaged = copied / "results" / "table5" / "mini" / "lrpe_type2-linear-s1.json"
    damaged.write_text(damaged.read_text()[:100])
    lost = copied / "results" / "table4" / "mini"
    lost.mkdir(parents=True)
    (lost / "x.json").write_text("{}")
    assert main(["pages"], copied) == 0
    said = capsys.readouterr().err
    assert "Left out of results/table5/mini.md: " in said and damaged.name in said
    assert "table4/mini/x.json" in said


def test_a_folder_without_results_is_named(root, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["pages"], root)
    assert stop.value.code == 2
    assert "`--results` must be a folder with results" in capsys.readouterr().err
