"""MkDocs: the notebooks of examples/ as pages, `examples/NAME.py` as `examples/NAME.md`."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: Any) -> Files:
    """A page for each notebook."""
    for path in sorted(ROOT.glob("examples/*.py")):
        content = as_page(path.name, path.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"examples/{path.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What links to a notebook leads to its page."""
    return re.sub(r"(\]\([\w./]*examples/\w+)\.py\)", r"\1.md)", markdown)


def as_page(name: str, notebook: str) -> str:
    """Markdown of a notebook in jupytext's percent form: its cells, in their order."""
    title, *cells = [_cell(cell) for cell in re.split(r"^# %%", notebook, flags=re.MULTILINE)[1:]]
    source = (
        f"*`examples/{name}` of the repository: run it with `python examples/{name}`, or make a "
        f"notebook of it with `jupytext --to ipynb examples/{name}`.*"
    )
    return "\n\n".join([title, source, *cells]) + "\n"


def _cell(cell: str) -> str:
    kind, _, text = cell.partition("\n")
    if kind.strip() != "[markdown]":
        return f"```python\n{text.strip()}\n```"
    prose = re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)
    return re.sub(r"`(docs/[\w-]+\.md)`", r"[\1](../\1)", prose)
