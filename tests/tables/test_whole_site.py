"""The site of all committed results: what no part of them can show."""

import re
from pathlib import Path

import pytest

from fairseq_plugins.site.build import build
from fairseq_plugins.site.reading import read_evidence
from tests.site_links import dead_links, pages

ROOT = Path(__file__).parents[2]
MOST_BYTES = 10e6
RAW = re.compile(r"\]\([\w./]+\.(md|png|svg|json)\)")  # a caption that no one rendered


@pytest.mark.slow
def test_the_site_of_all_results(tmp_path: Path) -> None:
    """One test, since the site takes half a minute to make and workers would each make it."""
    site = tmp_path / "report"
    build(read_evidence(ROOT), site, say=lambda _: None)

    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTES
    assert dead_links(site) == []
    found = pages(site)
    twice = [name for name, page in found.items() if len(set(page.ids)) < len(page.ids)]
    assert not twice, "no place has the name of another"
    assert not [name for name, page in found.items() if page.from_elsewhere], "no network"

    texts = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert not [name for name, text in texts.items() if RAW.search(text)]
    left_out = [name for name, text in texts.items() if 'class="warning"' in text]
    assert not left_out, "no committed result is left out"
    tables = {"table2-mini.html", "bert_table2-mini.html", "bert_table5-published.html"}
    assert tables <= texts.keys()
    for word in (
        "0.42",
        "at least 0.97",
        "missed",
        "Targets of this project",
    ):  # the paper's SPE, LRPE's target
        assert word in texts["speed.html"]
    assert "Figure 1: Dot products between position vectors" in texts["figures.html"]
    assert '"text":"position of the key"' in texts["figures.html"]
    # The folder that a model is in and the seed of fine-tuning are no settings of their own.
    lines = [line for text in texts.values() for line in text.splitlines()]
    told = [line for line in lines if "Settings that differ from those of seed" in line]
    assert told and not re.search(r"common\.seed|finetune_from_model", "".join(told))
