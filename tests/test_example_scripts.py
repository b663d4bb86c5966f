"""The examples run as they stand, and show what they say."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import jupytext
import pytest

from fairseq_plugins.encodings import ENCODINGS

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def run(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_notebook_in_percent_form(name: str) -> None:
    """A header that jupytext reads, then cells, of which the first has the title."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert text.startswith("# ---\n# jupyter:\n") and "format_name: percent" in text
    cells = re.split(r"^# %%", text, flags=re.M)[1:]
    assert cells[0].startswith(" [markdown]\n# # ")
    for cell in cells:
        if cell.startswith(" [markdown]"):
            lines = cell.splitlines()[1:]
            assert all(not line or line.startswith("#") for line in lines), cell


@pytest.mark.parametrize("name", NAMES)
def test_each_becomes_a_notebook_and_itself_again(name: str) -> None:
    """But for the versions that jupytext notes in the header."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    notebook = jupytext.writes(jupytext.reads(text, fmt="py:percent"), fmt="ipynb")
    cells = json.loads(notebook)["cells"]
    assert {cell["cell_type"] for cell in cells} == {"markdown", "code"}
    assert len(cells) == len(re.findall(r"^# %%", text, re.M))
    again = jupytext.writes(jupytext.reads(notebook, fmt="ipynb"), fmt="py:percent")
    assert re.sub(r"^#  +(format|jupytext)_version: .*\n", "", again, flags=re.M) == text


@pytest.fixture
def _registry_as_it_was():
    known = dict(ENCODINGS)
    yield
    ENCODINGS.clear()
    ENCODINGS.update(known)


@pytest.mark.usefixtures("_registry_as_it_was")
def test_an_encoding_of_ones_own() -> None:
    found = run("own_encoding")
    assert found["refusal"].startswith("linear attention cannot use the encoding 'log_fade'")
    assert max(found["errors"].values()) < 1e-5
    assert found["final"]["log_fade"] < found["final"]["none"]


def test_a_swap_of_a_llamas_rope() -> None:
    pytest.importorskip("transformers", reason="the models are its")
    found = run("swap_llama_rope")
    assert found["difference"] < 1e-5
    few, _, many = found["sizes"]["linear"]
    assert few == many < found["sizes"]["vanilla"][2]
    assert found["losses"][-1] < found["losses"][0]
    assert found["kept"]


def test_a_result_is_read() -> None:
    found = run("read_a_result")
    assert len(found["rows"]["rope"]) >= 3
    estimate = found["found"]
    assert estimate.low < estimate.effect < estimate.high


def test_sinusoids_under_a_linear_layer_are_a_fourier_series() -> None:
    found = run("fourier")
    assert found["equation_10"] < 1e-5
    fourier = [*found["errors"]["fourier"].values()]
    assert fourier == sorted(fourier, reverse=True) and fourier[-1] < 1e-3
    assert found["learned"] < 0.7 * found["errors"]["fixed"][found["dim"]]


def test_samples_shift_absolute_positions_alone() -> None:
    found = run("shifted_samples")
    assert [start + 1 for start in found["first"].values()] == [9, 10, 7]  # Appendix K
    assert found["moved"]["rope"] < 1e-5 < 0.1 < found["moved"]["learned"]


@pytest.mark.parametrize("page", ["layers", "huggingface"])
def test_a_page_prints_what_it_shows(page: str, capsys) -> None:
    """Each block of Python and what stands below it; rounding alone may differ."""
    if page == "huggingface":
        pytest.importorskip("transformers", reason="the models are its")
    text = (EXAMPLES.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", text, re.M | re.S)
    assert len(shown) == len(re.findall(r"^```python$", text, re.M)) > 2
    known: dict[str, Any] = {}
    for code, expected in shown:
        exec(compile(code, f"docs/{page}.md", "exec"), known)
        printed = capsys.readouterr().out
        assert re.sub(r"\d(\.\d)?e-0[789]", "tiny", printed) == re.sub(
            r"\d(\.\d)?e-0[789]", "tiny", expected
        )


@pytest.mark.slow
def test_a_table_on_ones_own_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OWN_FOLDER", str(tmp_path))
    monkeypatch.setenv("OWN_UPDATES", "10")
    found = run("table_on_own_text")
    assert set(found["results"]) == {"none", "rope"}
    assert (tmp_path / "results" / "table2" / "mine.md").is_file()
