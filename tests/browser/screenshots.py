"""Pictures of the report for docs/using.md: `python -m tests.browser.screenshots`.

Needs what `make test-browser` needs, and a report: `make report` makes one.
"""

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from fairseq_plugins.common.files import writing
from tests.browser.conftest import ROOT, SIZES, start_browser

COLOURS = 96  # of a picture's palette: text and charts need no more
DRAWN = "return document.querySelectorAll('.chart .main-svg').length"


@dataclass(frozen=True)
class Shot:
    """A page as it is pictured.

    Attributes:
        to: a chart that is scrolled to the middle, empty for the top of the page.
    """

    name: str
    page: str
    to: str = ""
    theme: str = "light"
    size: str = "wide"


SHOTS = (
    Shot("claims", "index.html"),
    Shot("table", "table2-mini.html", theme="dark"),
    Shot("cell", "run-table8-mini-rope-linear.html", to=".chart"),
    Shot("compare", "compare.html", to="#curves"),
    Shot("encoding", "encoding-lrpe_type2.html", to=".chart"),
    Shot("speed", "speed.html"),
    Shot("phone", "index.html", size="phone"),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Write docs/site/<name>.png for each of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=ROOT / "site" / "report", metavar="DIR")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "site", metavar="DIR")
    args = parser.parse_args(argv)
    if not (args.report / "index.html").is_file():
        parser.error(f"--report must be a folder that `make report` made, but is {args.report}")
    browser = start_browser()
    try:
        for shot in SHOTS:
            path = args.output / f"{shot.name}.png"
            _write(_taken(browser, args.report.resolve(), shot), path)
            print(f"{path}: {path.stat().st_size / 1e3:.0f} KB")
    finally:
        browser.quit()


def _taken(browser, report: Path, shot: Shot) -> bytes:
    browser.set_window_size(*SIZES[shot.size])
    browser.get((report / shot.page).as_uri())
    browser.execute_script(
        "document.documentElement.dataset.theme = arguments[0];"
        "document.dispatchEvent(new Event('theme'))",
        shot.theme,
    )
    if shot.name == "compare":
        _choose(browser)
    if shot.to:
        browser.execute_script(
            "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", shot.to
        )
        WebDriverWait(browser, 60).until(lambda b: b.execute_script(DRAWN))
    taken: bytes = browser.get_screenshot_as_png()
    return taken


def _choose(browser) -> None:
    """Two runs of Table 8 side by side."""
    Select(browser.find_element(By.ID, "table")).select_by_visible_text("LRPE, Table 8, mini")
    for row in ("RoPE, linear", "Type2, linear"):
        Select(browser.find_element(By.ID, "cell")).select_by_visible_text(row)
        browser.find_element(By.ID, "add").click()


def _write(picture: bytes, path: Path) -> None:
    """With a palette of its own, in which it takes a third of the room."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    small = image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as (file,):
        small.save(file, format="PNG", optimize=True)


if __name__ == "__main__":
    main()
