"""Links from pages in results/ to the same numbers on the site."""

from pathlib import Path


def figure_of(title: str, name: str) -> str:
    """A page's figure, and the files beside the page with the same to print and as numbers."""
    return (
        f"![{title} as a figure]({name}.png)\n\n"
        f"As [SVG]({name}.svg); its numbers are in [{name}.json]({name}.json)."
    )


def view_of(page: str, what: str = "the same to sort and to filter") -> str:
    """A sentence on where on the site of `fairseq-pe report` a page's numbers are."""
    return f"`fairseq-pe report` makes `site/report/{page}`: {what}."


def view_of_figure(stem: Path) -> list[str]:
    """The same of a figure's files, where they are in a folder of results/, which the site shows.

    stem: results/<folder>/<name>, without a suffix.
    """
    if stem.parent.parent.name != "results":
        return []
    place = f"figures.html#{stem.parent.name}-{stem.name}"
    return [view_of(place, "the same to look at closely")]
