"""The site of the repository's own results in Debian's Chromium."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if find_spec("selenium") is None:  # `make test` does not install it
    collect_ignore = ["test_docs_in_browser.py", "test_site_in_browser.py"]
SIZES = {"wide": (1280, 900), "phone": (390, 844)}


@dataclass(frozen=True)
class Made:
    """A site, and the processor's seconds that it took; None for one of before."""

    folder: Path
    seconds: float | None


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of REPORT_SITE, where that is set, else one made anew."""
    if before := os.environ.get("REPORT_SITE"):
        return Made(Path(before).resolve(), None)
    from fairseq_plugins.site.build import build
    from fairseq_plugins.site.reading import read_evidence

    folder, start = tmp_path_factory.mktemp("site") / "report", _processor_seconds()
    build(read_evidence(ROOT), folder)
    return Made(folder, _processor_seconds() - start)


def _processor_seconds() -> float:
    """Of this process and all that it waited for."""
    return sum(os.times()[:4])


@pytest.fixture(scope="session")
def site(made: Made) -> Path:
    """Its folder."""
    return made.folder


def start_browser():
    """Chromium without a window."""
    from selenium import webdriver

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.fail("chromium and its driver are missing: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.set_page_load_timeout(120)
    found.set_script_timeout(120)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator:
    found = start_browser()
    yield found
    found.quit()


@pytest.fixture
def opened(browser, site: Path) -> Iterator:
    """Opens a page of the site at a size; the test fails where the page logs an error."""

    def open_page(page: str, size: str = "wide"):
        browser.set_window_size(*SIZES[size])
        browser.get((site / page).as_uri())
        return browser

    browser.get_log("browser")
    yield open_page
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors
