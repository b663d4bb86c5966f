"""What the documents show and say no needs of runs as it stands, and prints what they show.

All of it in one process, in a clone with this working tree: the imports cost more than the rest.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.documentation import PAGES, ROOT, Command, commands, in_python

# Set-up, other people's programs, and words of the shell.
OTHERS = {"make", "pip", ".venv/bin/pip", "tensorboard", "export", "source", "for", "done"}
# Where what says no needs is run instead.
ELSEWHERE = {
    "docs/cluster.md": "tests/slurm",  # all of the page needs Slurm, as its title says
    "docs/extending.md": "tests/test_docs.py",
    "README.md: fairseq-pe prepare": "tests/test_docs.py",
    "README.md: fairseq-train": "tests/test_docs.py",
}
A_MINUTE = re.compile(r"(a|two) minutes?")
# Runs commands like Python's -m, one after the other, and writes each one's status and output.
RUNNER = """
import contextlib, io, json, os, runpy, sys
commands, path = json.loads(sys.argv[1]), sys.argv[2]
found = []
for module, words in commands:
    sys.argv, printed, before = [module, *words], io.StringIO(), dict(os.environ)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = runpy.run_module(module, run_name="__main__", alter_sys=True) and 0
        except SystemExit as end:
            status = end.code or 0
    os.environ.clear()
    os.environ.update(before)
    found.append([status, printed.getvalue()])
    with open(path, "w") as file:
        json.dump(found, file)
"""


def to_run(command: Command) -> bool:
    """Whether it has to run: not set-up, nothing to fill in, and not run elsewhere."""
    return not (
        command.words[0] in OTHERS
        or command.is_to_be_filled_in
        or any(str(command).startswith(start) for start in ELSEWHERE)
    )


EVERY = [command for page in PAGES for command in commands(page) if to_run(command)]
QUICK = [command for command in EVERY if not command.needs]
OF_A_MINUTE = [command for command in EVERY if A_MINUTE.fullmatch(command.needs)]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """With the history, which says what is published, and the files of the working tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("there is no history here")
    folder = tmp_path / "clone"
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "clone", "-q", "--no-checkout", str(ROOT), str(folder)], check=True)
    listed = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "-C", str(folder), "reset", "-q"], check=True)
    return folder


def run(clone: Path, chosen: Iterable[Command]) -> list[tuple[int, str]]:
    """The exit status and the output of each."""
    given = json.dumps([in_python(command.words) for command in chosen])
    found = clone.parent / "found.json"
    around = {name: text for name, text in os.environ.items() if not name.startswith("FAIRSEQ_PE")}
    around |= {"PYTHONPATH": str(clone), "COLUMNS": "100", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, given, str(found)],
        cwd=clone,
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    within = f"{clone}{os.sep}"
    return [(status, text.replace(within, "")) for status, text in json.loads(found.read_text())]


def check(chosen: list[Command], found: list[tuple[int, str]]) -> None:
    """Each ended as it should, and printed every line shown: numbers and commits may be others."""

    def alike(text: str) -> str:
        return re.sub(r"\b[0-9a-f]{10}\b|\d+", "#", text)

    for command, (status, text) in zip(chosen, found, strict=True):
        is_refused = any("error: " in line for line in command.printed)
        assert status == (2 if is_refused else 0), f"{command}\n{text[-2000:]}"
        for line in command.printed:
            is_of_the_machine = command.words[1] == "doctor"
            shown = line.partition(":")[0] if is_of_the_machine else line
            assert line == "..." or alike(shown.rstrip(" .")) in alike(text), f"{command}\n{line}"


def test_there_are_some_of_each_kind() -> None:
    assert {"fairseq-pe doctor", "scripts/gpu_campaign.sh --list"} <= {
        " ".join(command.words) for command in QUICK
    }
    assert "scripts/claims.sh" in {" ".join(command.words) for command in OF_A_MINUTE}
    assert any(command.printed for command in QUICK)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_commands_that_need_nothing_run(clone: Path) -> None:
    check(QUICK, run(clone, QUICK))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_that_need_a_minute_run(clone: Path) -> None:
    check(OF_A_MINUTE, run(clone, OF_A_MINUTE))
