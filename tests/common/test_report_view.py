"""Pages in results/ name the page of the site that shows the same."""

from pathlib import Path

from fairseq_plugins.common.report_view import view_of, view_of_figure


def test_a_page_is_named_where_the_site_makes_it() -> None:
    assert "`site/report/speed.html`" in view_of("speed.html")


def test_a_figure_elsewhere_is_not_on_the_site() -> None:
    (said,) = view_of_figure(Path("results", "bert_figure1", "mini"))
    assert "`site/report/figures.html#bert_figure1-mini`" in said
    assert view_of_figure(Path("thesis", "figure")) == []
