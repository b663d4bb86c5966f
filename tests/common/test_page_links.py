"""Pages in results/ name the page of the site that shows the same."""

from pathlib import Path

from fairseq_plugins.common.pages import figure_site_link, site_link


def test_a_page_is_named_where_the_site_makes_it() -> None:
    assert "`site/report/speed.html`" in site_link("speed.html")


def test_a_figure_elsewhere_is_not_on_the_site() -> None:
    (said,) = figure_site_link(Path("results", "bert_figure1", "mini"))
    assert "`site/report/figures.html#bert_figure1-mini`" in said
    assert figure_site_link(Path("thesis", "figure")) == []
