"""The documentation's site, opened from a file without a network."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.documentation import build_documentation

pytestmark = pytest.mark.browser


def requests(browser) -> list[str]:
    """What the browser asked for since the last look, in frames too."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent]


@pytest.fixture(scope="module")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of DOCS_SITE, where that is set, else one made anew."""
    if made := os.environ.get("DOCS_SITE"):
        return Path(made).resolve()
    folder = tmp_path_factory.mktemp("documentation")
    build_documentation(folder)
    return folder


@pytest.fixture
def offline(browser) -> Iterator:
    """The browser, cut off from every network."""
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **network})
    browser.set_window_size(1280, 900)
    for log in ("browser", "performance"):
        browser.get_log(log)
    yield browser
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **network})


def test_search_finds_a_word_from_a_file(offline, documentation: Path) -> None:
    offline.get((documentation / "docs" / "faq.html").as_uri())
    offline.find_element(By.CSS_SELECTOR, "input.md-search__input").send_keys("householder")
    links = WebDriverWait(offline, 60).until(
        lambda b: b.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
    )
    pages = {link.get_attribute("href").partition("?")[0] for link in links}
    assert (documentation / "docs" / "encodings.html").as_uri() in pages
    names = requests(offline)
    assert any("search_index.js" in name for name in names), names
    assert all(name.startswith(("file:", "data:", "blob:")) for name in names), names
    assert not [entry for entry in offline.get_log("browser") if entry["level"] == "SEVERE"]
