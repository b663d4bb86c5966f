"""The site of all committed results: what no part of them can show."""

import re
from pathlib import Path

import pytest

from tests.browser.conftest import Made
from tests.site_links import dead_links, pages

pytestmark = pytest.mark.browser
MOST_BYTES = 10e6
MOST_SECONDS = 75  # of processor: two cores share most of it, and a minute is what a reader waits


def test_every_link_leads_somewhere(site: Path) -> None:
    assert dead_links(site) == []


def test_no_place_has_the_name_of_another(site: Path) -> None:
    found = pages(site)
    assert not [name for name, page in found.items() if len(set(page.ids)) < len(page.ids)]


def test_nothing_comes_from_a_network(site: Path) -> None:
    assert not [name for name, page in pages(site).items() if page.from_elsewhere]


def test_it_is_small(site: Path) -> None:
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size < MOST_BYTES


def test_it_is_made_in_a_minute(made: Made) -> None:
    if made.seconds is None:
        pytest.skip("REPORT_SITE was made before")
    assert made.seconds < MOST_SECONDS


def test_no_markdown_is_left_on_a_page(site: Path) -> None:
    """A caption that no one rendered has its links in brackets."""
    raw = re.compile(r"\]\([\w./]+\.(md|png|svg|json)\)")
    texts = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert not [name for name, text in texts.items() if raw.search(text)]


def test_every_table_that_has_results_is_there(site: Path) -> None:
    names = {path.name for path in site.glob("*.html")}
    assert {"table2-mini.html", "bert_table2-mini.html", "bert_table5-mini.html"} <= names


def test_speed_has_table_9s_paper_and_targets(site: Path) -> None:
    text = (site / "speed.html").read_text(encoding="utf-8")
    for word in ("0.42", "at least 0.97", "missed"):  # the paper's SPE, LRPE's target
        assert word in text


def test_no_committed_result_is_left_out(site: Path) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert not [name for name, text in texts.items() if 'class="warning"' in text]


def test_figures_have_titles_and_axes(site: Path) -> None:
    text = (site / "figures.html").read_text(encoding="utf-8")
    assert "Figure 1: Dot products between position vectors" in text
    assert '"text":"position of the key"' in text
