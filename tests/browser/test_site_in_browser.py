"""A reader's ways through the site, clicked in a real browser."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

pytestmark = pytest.mark.browser

SECTIONS = ["index", "tables", "compare", "encodings", "figures", "speed"]
# One of each kind of page.
KINDS = [
    *(f"{name}.html" for name in SECTIONS),
    "claim-lm-linear-type2-rope.html",
    "table2-mini.html",
    "run-table2-mini-rope-linear.html",
    "encoding-lrpe_type2.html",
]
SERIOUS = {"serious", "critical"}
WAIT = 60
# 210 mm less the margins that Chromium prints with, in CSS's pixels.
A4 = {"width": 718, "height": 1047, "deviceScaleFactor": 1, "mobile": False}


def wait(browser, condition):
    return WebDriverWait(browser, WAIT).until(condition)


def shown_rows(browser, table: str) -> list[list[str]]:
    return browser.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))",
        table,
    )


def pasted(browser) -> str:
    """What the clipboard holds, as a reader would find it."""
    browser.execute_script(
        "const area = document.createElement('textarea'); area.id = 'pasted';"
        "document.body.append(area); area.focus()"
    )
    area = browser.find_element(By.ID, "pasted")
    area.send_keys(Keys.CONTROL, "v")
    return area.get_attribute("value")


def test_three_clicks_to_lrpe_against_rope_under_linear_attention(opened) -> None:
    """Does it beat RoPE, how sure, and how do I run it."""
    browser = opened("index.html")
    search = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("linear attention, language model: type 2 RoPE")
    browser.find_element(By.PARTIAL_LINK_TEXT, "type 2 has a lower perplexity than RoPE").click()
    said = wait(browser, lambda b: b.find_element(By.CLASS_NAME, "said")).text
    assert "95 % interval" in said
    assert browser.find_element(By.CSS_SELECTOR, "h2 .badge").text in (
        "confirmed",
        "undecided",
        "contradicted",
    )
    browser.find_element(By.CLASS_NAME, "copy").click()
    wait(browser, lambda b: b.find_element(By.CLASS_NAME, "copy").text == "Copied")
    command = pasted(browser)
    assert command.startswith(
        "scripts/table2.sh --scale mini --rows lrpe_type2,rope --attention linear"
    )
    assert "--seeds 1,2" in command


def test_a_table_is_sorted_and_filtered(opened) -> None:
    browser = opened("table2-mini.html")
    everything = shown_rows(browser, "rows")
    kind = Select(browser.find_element(By.CSS_SELECTOR, "select[data-column='1']"))
    kind.select_by_visible_text("transforms q, k")
    transforms = shown_rows(browser, "rows")
    assert 0 < len(transforms) < len(everything)
    assert {row[1] for row in transforms} == {"transforms q, k"}
    headers = browser.find_elements(By.CSS_SELECTOR, "#rows thead th")
    column = next(i for i, one in enumerate(headers) if "linear: PPL (test)" in one.text)
    headers[column].find_element(By.CSS_SELECTOR, ".dt-column-order").click()
    numbers = [row[column].split()[0] for row in shown_rows(browser, "rows")]
    known = [float(text) for text in numbers if text != "-"]
    assert len(known) > 5
    assert known == sorted(known)
    assert headers[column].get_attribute("aria-sort") == "ascending"


def test_headers_are_sorted_by_keyboard(opened) -> None:
    browser = opened("tables.html")
    order = browser.find_elements(By.CSS_SELECTOR, "#all thead .dt-column-order")[2]
    browser.execute_script("arguments[0].focus()", order)
    order.send_keys(Keys.ENTER)

    def are_sorted(browser) -> bool:
        names = [row[2].casefold().replace("\n", "") for row in shown_rows(browser, "all")]
        return names == sorted(names)

    assert wait(browser, are_sorted)


def test_a_cell_opens_its_runs_and_their_commands(opened) -> None:
    browser = opened("table2-mini.html")
    browser.find_element(
        By.CSS_SELECTOR, "#rows a[href='run-table2-mini-rope-linear.html']"
    ).click()
    text = wait(browser, lambda b: b.find_element(By.TAG_NAME, "main")).text
    for word in ("seed 1", "commit", "torch", "Configuration"):
        assert word in text
    browser.find_element(By.CSS_SELECTOR, "a[href*='#commands-']").click()
    commands = wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "details[open]"))
    assert "fairseq-hydra-train" in commands.text
    commands.find_element(By.CLASS_NAME, "copy").click()
    assert "model=ROW" in pasted(browser)


def test_a_run_with_a_curve_draws_it(opened) -> None:
    browser = opened("run-table8-mini-rope-linear.html")
    chart = browser.find_element(By.CLASS_NAME, "chart")
    browser.execute_script("arguments[0].scrollIntoView()", chart)
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".chart .scatterlayer .trace"))


def test_two_encodings_and_two_runs_are_compared(opened) -> None:
    browser = opened("compare.html")
    table = wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "#pairs table"))
    assert "LRPE, Table 2, mini" in table.text
    before = table.text
    Select(browser.find_element(By.ID, "second")).select_by_visible_text("base")
    after = browser.find_element(By.CSS_SELECTOR, "#pairs table").text
    assert after != before
    tables = Select(browser.find_element(By.ID, "table"))
    tables.select_by_visible_text("LRPE, Table 8, mini")
    for row in ("RoPE, linear", "Type2, linear"):
        Select(browser.find_element(By.ID, "cell")).select_by_visible_text(row)
        browser.find_element(By.ID, "add").click()
    text = browser.find_element(By.ID, "side-by-side").text
    assert "model.position_encoding" in text
    wait(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, "#curves .trace")) >= 2)


def test_an_encodings_page_has_formula_picture_and_numbers(opened) -> None:
    browser = opened("encodings.html")
    search = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("lrpe_type2")
    browser.find_element(By.LINK_TEXT, "lrpe_type2").click()
    formula = wait(browser, lambda b: b.find_element(By.TAG_NAME, "math"))
    assert "theta" in formula.get_attribute("aria-label")
    assert formula.rect["width"] > 50
    chart = browser.find_element(By.CSS_SELECTOR, ".chart")
    browser.execute_script("arguments[0].scrollIntoView()", chart)
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".chart .main-svg"))
    assert "LRPE, Table 2, mini" in browser.find_element(By.TAG_NAME, "main").text


@pytest.mark.parametrize("page", KINDS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(opened, page: str, theme: str) -> None:
    browser = opened(page)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    browser.execute_script(Path(os.environ["AXE_CORE"]).read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, { resultTypes: ['violations'], preload: false })"
        ".then(r => done(r.violations))"
    )
    faults = [
        (fault["id"], [node["target"] for node in fault["nodes"][:3]])
        for fault in found
        if fault["impact"] in SERIOUS
    ]
    assert not faults, json.dumps(faults, indent=1)


@pytest.mark.parametrize("page", KINDS)
def test_a_phone_scrolls_no_page_sideways(opened, page: str) -> None:
    """Wide tables scroll in regions of their own."""
    browser = opened(page, "phone")
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= browser.execute_script("return window.innerWidth")


def test_the_colours_change_and_stay(opened) -> None:
    browser = opened("index.html")
    theme = "return document.documentElement.dataset.theme"
    before = browser.execute_script(theme)
    browser.find_element(By.ID, "theme").click()
    after = browser.execute_script(theme)
    assert {before, after} == {"light", "dark"}
    browser.refresh()
    assert browser.execute_script(theme) == after
    browser.execute_script("localStorage.clear()")


def test_nothing_is_loaded_from_a_network(opened) -> None:
    for page in KINDS:
        browser = opened(page)
        names = browser.execute_script(
            "return performance.getEntriesByType('resource').map(entry => entry.name)"
        )
        assert all(name.startswith(("file:", "data:", "blob:")) for name in names), page


def test_the_first_view_takes_less_than_a_second(opened) -> None:
    paints = []
    for _ in range(3):
        browser = opened("index.html")
        paints.append(
            wait(
                browser,
                lambda b: b.execute_script(
                    "const [paint] = performance.getEntriesByName('first-contentful-paint');"
                    "return paint && paint.startTime"
                ),
            )
        )
    assert min(paints) < 1000, paints


@pytest.fixture
def printed(opened) -> Iterator:
    """Opens a page in the dark theme as it would be on a sheet of A4."""

    def open_page(page: str):
        browser = opened(page)
        browser.execute_script("document.documentElement.dataset.theme = 'dark'")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", A4)
        return browser

    yield open_page
    browser = opened("index.html")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    "page", [*KINDS, "bert_table3-published.html", "bert_table5-published.html"]
)
def test_on_paper_text_is_dark_and_no_table_is_cut(printed, page: str) -> None:
    browser = printed(page)
    light = browser.execute_script(
        "return [...document.querySelectorAll('main *')].map(one => {"
        "const [r, g, b] = getComputedStyle(one).color.match(/\\d+/g).map(Number);"
        "return r + g + b }).filter(sum => sum > 384).length"
    )
    assert light == 0
    cut = browser.execute_script(
        "return [...document.querySelectorAll('main table')].map(table => "
        "Math.ceil(table.getBoundingClientRect().right)"
        " - (table.closest('.landscape') ? arguments[0] : window.innerWidth))"
        ".filter(over => over > 0)",
        A4["height"],
    )
    assert not cut


def test_charts_are_printed_in_light_colours(opened) -> None:
    browser = opened("table2-mini.html")
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")
    theme = "return document.documentElement.dataset.theme"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(theme) == "light"
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(theme) == "dark"
