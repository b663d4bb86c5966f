"""MkDocs: pages keep the paths that they have in the repository, so that one link serves both.

`docs/` is a folder of the site, beside README.md, results/ and the other pages of the repository;
what links lead to that is no page is copied along.
"""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Whatever the nav or a page may lead to.
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "data/README.md"),
    *("checkpoints/README.md", "results/*.md", "results/*/*.md", "benchmarks/results/*/*.md"),
)
BESIDE = (
    *(
        "requirements.txt",
        "CITATION.cff",
        "LICENSE",
        "docs/*/*.png",
        "docs/*/*.json",
        "docs/vendor/*",
    ),
    *("results/*.png", "results/*/*.png", "results/*/*.svg", "results/*/*.json"),
    *("benchmarks/results/*/*.png", "benchmarks/results/*/*/*.json", "docs/*/*.svg"),
)
FOLDERS = ("results/", "benchmarks/")  # entries of the nav that stand for all pages below them


def on_config(config: Any) -> Any:
    """Put the pages of a folder where the nav names it."""
    config["nav"] = _expanded(config["nav"])
    return config


def on_files(files: Files, config: Any) -> Files:
    """All pages by their paths in the repository, and what the theme and the plugins bring."""
    found = [file for file in files if file.src_dir != config["docs_dir"]]
    for pattern in (*PAGES, *BESIDE):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            found.append(File(name, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    return Files(found)


def _expanded(entries: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            (title, content), *_ = entry.items()
            if isinstance(content, list):
                entry = {title: _expanded(content)}
            elif content in FOLDERS:
                entry = {title: _below(content)}
        found.append(entry)
    return found


def _below(folder: str) -> list[str]:
    pages = [path for pattern in PAGES if pattern.startswith(folder) for path in ROOT.glob(pattern)]
    names = sorted(path.relative_to(ROOT).as_posix() for path in pages)
    return [name for name in names if name != "results/claims.md"]
