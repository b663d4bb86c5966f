"""The documentation's site: it builds strictly, holds together, and needs no network."""

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image

from fairseq_plugins.encodings import ENCODINGS
from tests.documentation import ROOT, build_documentation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("material", "mkdocstrings")),
        reason="`make docs` installs what the site is built with",
    ),
]
DRAWN = {"learned", "xl"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}  # links of a head that only tell


@dataclass
class Page(HTMLParser):
    """Where a page leads (``links``), what it loads, and the anchors that it has."""

    text: str
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if "src" in given:
            self.loaded.append(given["src"])
        if "href" in given:
            is_loaded = tag == "link" and given.get("rel") not in NOT_LOADED
            (self.loaded if is_loaded else self.links).append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation")
    pictures = tmp_path_factory.mktemp("pictures")
    for name in ENCODINGS.keys() - DRAWN:  # tests/analysis draws one of every kind
        Image.new("RGB", (1, 1)).save(pictures / f"{name}.png")
    assert build_documentation(folder, pictures) == ""
    assert {path.stem for path in pictures.iterdir()} >= DRAWN
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """But for the page of what is not found, which only a server shows."""
    found = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    del found[site / "404.html"]
    return found


def local(page: Path, addresses: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Those without a host: each with its file and its anchor."""
    for address in addresses:
        parts = urlsplit(address)
        if not parts.scheme:
            assert not parts.netloc, address
            path = unquote(parts.path)
            yield address, (page.parent / path).resolve() if path else page, unquote(parts.fragment)


def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 50
    broken = []
    for path, page in pages.items():
        for address, target, anchor in local(path, page.links):
            is_there = target.is_file()
            if anchor and target in pages:
                is_there = anchor in pages[target].anchors
            if not is_there:
                broken.append(f"{path.name}: {address}")
    assert not broken


def test_what_a_page_loads_is_in_the_site(site: Path, pages: dict[Path, Page]) -> None:
    """Nothing of another host; the theme's style, its program and the search's index are there."""
    for path, page in pages.items():
        assert len(list(local(path, page.loaded))) == len(page.loaded), (path.name, page.loaded)
        missing = [address for address, file, _ in local(path, page.loaded) if not file.is_file()]
        assert not missing, path.name
        names = [Path(address).name for address in page.loaded]
        for name in (r"main\..*\.css", r"bundle\..*\.js", r"iframe-worker\.js"):
            assert any(re.fullmatch(name, one) for one in names), (path.name, name)
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {entry["location"].partition("#")[0] for entry in index["docs"]} == {
        path.relative_to(site).as_posix() for path in pages
    }
    assert (site / "search" / "search_index.js").is_file()


def test_every_encoding_is_shown_where_it_is_defined(site: Path, pages: dict[Path, Page]) -> None:
    text = (site / "docs" / "encodings.html").read_text(encoding="utf-8")
    for name in ENCODINGS:
        (section,) = re.findall(rf'<h3 id="{name}">(.*?)<h3 ', f"{text}<h3 ", re.DOTALL)
        assert f'loading="lazy" src="pictures/{name}.png"' in section, name
        picture = (site / "docs" / "pictures" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG"), name


def test_the_reference_has_objects_commands_and_notebooks(
    site: Path, pages: dict[Path, Page]
) -> None:
    """Made from docstrings, parsers and cells."""
    anchors = pages[site / "docs" / "api.html"].anchors
    for name in (
        "fairseq_plugins.attention.PositionalMultiheadAttention",
        "fairseq_plugins.encodings.build_encoding",
        "fairseq_plugins.integrations.huggingface.replace_position_encoding",
        "fairseq_plugins.kernels.causal_linear_attention",
    ):
        assert name in anchors
    commands = pages[site / "docs" / "commands.html"]
    for name in ("fairseq-pe-status", "fairseq-pe-table-table5", "fairseq-pe-prepare-mlm-text"):
        assert name in commands.anchors
    assert "usage: fairseq-pe analyse picture" in commands.text
    for notebook in (ROOT / "examples").glob("*.py"):
        shown = pages[site / "examples" / f"{notebook.stem}.html"].text
        for heading in re.findall(
            r"^# #+ (.*)$", notebook.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert heading.replace("`", "") in re.sub(r"</?code>", "", shown), heading
        assert "%%" not in shown
