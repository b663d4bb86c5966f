"""Markdown as HTML in which nothing of a result can become markup of its own."""

from collections.abc import Iterator, Mapping, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

# Without raw HTML: what looks like a tag is shown as it stands.
_RENDERER = MarkdownIt("commonmark", {"html": False}).enable("table")
_ELSEWHERE = ("https://", "http://")


def to_html(text: str, *, headings: int = 0, links: Mapping[str, str] | None = None) -> Markup:
    """A text of our own writing or of a result's.

    Tables stand in a region of their own that scrolls, and that the keyboard can reach. Of a
    picture there is its description.

    Args:
        text: Markdown.
        headings: so many levels lower are these.
        links: where on the site a link of a page in results/ leads; one that is not there is
            plain text, since its file is not on the site.
    """
    tokens = _RENDERER.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + headings)}"
        if token.children:
            token.children = list(_placed(token.children, links or {}))
    html = _RENDERER.renderer.render(tokens, _RENDERER.options, {})
    opened = '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>'
    html = html.replace("<table>", opened).replace("</table>", "</table></div>")
    return Markup(html)


def inline(text: str) -> Markup:
    """A sentence, without a paragraph around it."""
    (token,) = _RENDERER.parseInline(text)
    token.children = list(_placed(token.children or [], {}))
    return Markup(_RENDERER.renderer.render([token], _RENDERER.options, {}))


def _placed(tokens: Sequence[Token], links: Mapping[str, str]) -> Iterator[Token]:
    """A paragraph with its links as they are on the site, and pictures as their descriptions."""
    is_kept = False
    for token in tokens:
        if token.type == "image":
            yield from _placed(token.children or [], links)
        elif token.type == "link_open":
            href = str(token.attrs["href"])
            target = links.get(href, href if href.startswith(_ELSEWHERE) else None)
            is_kept = target is not None
            if target is not None:
                token.attrs["href"] = target
                yield token
        elif token.type != "link_close" or is_kept:
            yield token
