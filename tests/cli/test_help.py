"""`--help` of every command: at once, and nothing but the help."""

import functools
import re
import resource
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.__main__ import COMMANDS
from fairseq_plugins.cli.analyse import get_parser

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = 'if __name__ == "__main__":'


def commands() -> list[str]:
    """The words behind `python` of every command: programs, scripts, and those in one program."""
    found = {"scripts/convert_roberta.py"}
    for path in [*ROOT.glob("fairseq_plugins/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        text = path.read_text()
        if PROGRAM in text and "Parser" in text:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.add(f"-m {name.removesuffix('.__main__')}")
    for path in ROOT.glob("scripts/*.sh"):
        found |= set(re.findall(r'exec "\$PYTHON" (.*) "\$@"', path.read_text()))
    (choices,) = (a.choices for a in get_parser()._actions if a.dest == "command")
    found |= {f"-m fairseq_plugins analyse {name}" for name in choices}
    return sorted(found | {f"-m fairseq_plugins {name}" for name in COMMANDS})


def run(*words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds of the processor, of which a busy machine takes hardly more, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done


def test_every_command_is_here():
    assert {
        "-m fairseq_plugins table table2",
        "-m benchmarks",
        "-m fairseq_plugins doctor",
    } <= {*commands()}


@functools.cache
def seconds_of_python() -> float:
    return run("-c", "import argparse")[0]


def is_quick(words: str) -> bool:
    """Whether it is a command of `fairseq-pe` itself; the others take two processes each too."""
    return words.removeprefix("-m fairseq_plugins ") in COMMANDS


@pytest.mark.parametrize(
    "words",
    [pytest.param(each, marks=[pytest.mark.slow] * (not is_quick(each))) for each in commands()],
)
def test_help_takes_no_longer_than_python_and_says_nothing_else(words):
    for time in range(4):
        # Measured again beside it where it seems slow: a busy machine slows both.
        limit = 7 * (run("-c", "import argparse")[0] if time else seconds_of_python())
        seconds, done = run(*words.split(), "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: ")
        if seconds <= limit:
            return
    raise AssertionError(f"took {seconds:.2f} s, which must be at most {limit:.2f}")


@pytest.mark.parametrize(
    "name",
    [
        ".".join(path.relative_to(ROOT).parent.parts)
        for path in sorted(ROOT.glob("fairseq_plugins/**/__main__.py"))
    ],
)
def test_every_package_with_an_entry_point_runs_its_command(name, monkeypatch, capsys):
    """Results record `python -m` and the package; the program may be in another one."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")
