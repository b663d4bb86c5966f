"""A page of results as data, and as Markdown: the result first, its provenance folded below."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.files import write_text

# The beginning of a tag, except fairseq's special symbols.
_TAG = re.compile(r"<(?!(?:/?s|pad|unk|mask)>)(?=[A-Za-z/!?])")


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    heading: str  # in Markdown; the first section of a page may have none
    parts: Sequence[str]  # paragraphs, lists and tables in Markdown
    is_folded: bool = False  # whether readers have to open it
    level: int = 2  # of the heading

    @property
    def text(self) -> str:
        """The parts in Markdown, with escaped HTML."""
        return escape_html("\n\n".join(self.parts))

    def markdown(self) -> str:
        """Format the section with its heading."""
        if self.is_folded:
            summary = f"<details>\n<summary>{escape_html(self.heading)}</summary>"
            return f"{summary}\n\n{self.text}\n\n</details>"
        return f"{'#' * self.level} {escape_html(self.heading)}\n\n{self.text}"


@dataclass(frozen=True)
class Page:
    """A page of results."""

    title: str  # in Markdown
    caption: str  # the measurement and its data; one line
    result: Sequence[str]  # the table or picture that readers come for, and how to read it
    sections: Sequence[Section] = ()  # all else, in order

    def markdown(self) -> str:
        """Format the page."""
        top = escape_html("\n\n".join([f"# {self.title}", self.caption, *self.result]))
        return "\n\n".join([top, *(section.markdown() for section in self.sections)]) + "\n"

    def write(self, path: Path) -> None:
        """Write the page as Markdown, atomically."""
        write_text(path, self.markdown())


def provenance_section(*parts: str) -> Section:
    """Return the folded section with the provenance of results."""
    return Section("How this was made", parts, is_folded=True)


def bullets(sentences: Sequence[str]) -> str:
    """Format sentences as a list."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def figure_section(title: str, name: str, note: str = "") -> Section:
    """Return the section with a figure, its SVG and the JSON of its numbers."""
    files = f"As [SVG]({name}.svg); its numbers are in [{name}.json]({name}.json)."
    return Section("Figure", [f"![{title} as a figure]({name}.png)", *filter(None, [note]), files])


def site_link(page: str, what: str = "these numbers to sort and to filter") -> str:
    """Point to a page's numbers on the site of `fairseq-pe report`."""
    return f"`fairseq-pe report` makes `site/report/{page}`: {what}."


def figure_site_link(stem: Path) -> list[str]:
    """Point to a figure on the site; [] unless `stem` is results/<folder>/<name>."""
    if stem.parent.parent.name != "results":
        return []
    anchor = f"figures.html#{stem.parent.name}-{stem.name}"
    return [site_link(anchor, "the same to look at closely")]


def escape_html(text: str) -> str:
    """Escape every tag in Markdown, which passes HTML through; results may come from anyone.

    Tags in code are escaped too, since a text may forge the end of code.
    """
    return _TAG.sub("&lt;", text)
