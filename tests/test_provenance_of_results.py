"""Every committed result names a commit of this repository's history, and a clean one."""

import json
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("results", "benchmarks/results")


def commits_of(value: object) -> list[str]:
    """All that a result calls a commit, at any depth."""
    if isinstance(value, list):
        return [found for inner in value for found in commits_of(inner)]
    if not isinstance(value, dict):
        return []
    own = value.get("commit")
    return [*([own] if isinstance(own, str) else []), *commits_of(list(value.values()))]


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="an archive has no history")
def test_results_were_made_by_commits_of_the_history() -> None:
    assert git("rev-parse", "--is-shallow-repository").strip() == "false", "fetch all commits"
    history = set(git("log", "--format=%H").split())
    paths = git("ls-files", "--", *(f"{folder}/*.json" for folder in FOLDERS)).split("\n")
    named = {
        path: commits_of(json.loads((REPOSITORY / path).read_text())) for path in paths if path
    }
    assert sum(map(bool, named.values())) > 100
    strangers = {
        path: commit for path, all_of_it in named.items() for commit in all_of_it
        if commit not in history
    }  # fmt: skip
    assert not strangers
