"""What the pages of a site link to."""

import re
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Tags, ids and what links lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            if name == "id":
                self.ids.append(value)

    @property
    def from_elsewhere(self) -> list[str]:
        """What would be loaded from a network."""
        return [target for target in self.targets if re.match(r"(?!data:)\w*:?//", target)]


def pages(site: Path) -> dict[str, Page]:
    return {p.name: Page(p.read_text(encoding="utf-8")) for p in sorted(site.glob("*.html"))}


def dead_links(site: Path) -> list[tuple[str, str]]:
    """Each page with a target that is no file of the site, or no place on its page."""
    found = pages(site)
    dead = []
    for name, page in found.items():
        for target in page.targets:
            path, _, place = target.partition("#")
            if path.startswith("data:"):
                continue
            other = path or name
            if not (site / other).is_file() or (place and place not in found[other].ids):
                dead.append((name, target))
    return dead
