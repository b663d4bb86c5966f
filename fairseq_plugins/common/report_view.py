"""Links from pages in results/ to figures and to the site."""

from pathlib import Path


def figure_markdown(title: str, name: str) -> str:
    """Embed a figure in a page, with links to its SVG and JSON."""
    return (
        f"![{title} as a figure]({name}.png)\n\n"
        f"As [SVG]({name}.svg); its numbers are in [{name}.json]({name}.json)."
    )


def site_link(page: str, what: str = "the same to sort and to filter") -> str:
    """Point to a page's numbers on the site of `fairseq-pe report`."""
    return f"`fairseq-pe report` makes `site/report/{page}`: {what}."


def figure_site_link(stem: Path) -> list[str]:
    """Point to a figure on the site; [] unless `stem` is results/<folder>/<name>."""
    if stem.parent.parent.name != "results":
        return []
    anchor = f"figures.html#{stem.parent.name}-{stem.name}"
    return [site_link(anchor, "the same to look at closely")]
