"""Rendering of Markdown to HTML, without HTML from results."""

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

# Without raw HTML: tags are shown as text.
_RENDERER = MarkdownIt("commonmark", {"html": False}).enable("table")
_ELSEWHERE = ("https://", "http://")


def to_html(text: str, *, headings: int = 0) -> Markup:
    """Render a text; tables scroll and are reachable by keyboard, pictures become descriptions.

    Links within results/ become text.

    Args:
        text: Markdown.
        headings: number of levels by which headings are lowered.
    """
    tokens = _RENDERER.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + headings)}"
        if token.children:
            token.children = list(_resolve(token.children))
    html = _RENDERER.renderer.render(tokens, _RENDERER.options, {})
    opened = '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>'
    html = html.replace("<table>", opened).replace("</table>", "</table></div>")
    return Markup(html)


def inline(text: str) -> Markup:
    """Render a sentence without a paragraph around it."""
    (token,) = _RENDERER.parseInline(text)
    token.children = list(_resolve(token.children or []))
    return Markup(_RENDERER.renderer.render([token], _RENDERER.options, {}))


def _resolve(tokens: Sequence[Token]) -> Iterator[Token]:
    """Keep links to other sites, and replace pictures by their descriptions."""
    is_kept = False
    for token in tokens:
        if token.type == "image":
            yield from _resolve(token.children or [])
        elif token.type == "link_open":
            is_kept = str(token.attrs["href"]).startswith(_ELSEWHERE)
            if is_kept:
                yield token
        elif token.type != "link_close" or is_kept:
            yield token
