"""Every command that the documents show is one that its own program takes.

Options, choices and overrides are read by the parsers that read them in use; nothing is started.
What a command does with them is for the tests of that command.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from omegaconf import OmegaConf

from benchmarks import __main__ as bench
from benchmarks import gpu_campaign, preparation_curve, table9, training
from fairseq_plugins import __main__ as fairseq_pe
from fairseq_plugins.glue import __main__ as glue
from fairseq_plugins.reproduce.record.recipe import compose_recipe
from fairseq_plugins.squad import __main__ as squad

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
PROGRAMS = {
    "benchmarks": bench.main,
    "benchmarks.gpu_campaign": gpu_campaign.main,
    "benchmarks.preparation_curve": preparation_curve.main,
    "benchmarks.table9": table9.main,
    "benchmarks.training": training.main,
    "fairseq_plugins": fairseq_pe.main,
    "fairseq_plugins.glue": glue.main,
    "fairseq_plugins.squad": squad.main,
}
# Other people's programs, and words of the shell.
OTHERS = {"pip", ".venv/bin/pip", "tensorboard", "apptainer", "export", "source", "for", "done"}
# They are for encodings that a reader of docs/extending.md writes; test_docs.py runs them.
OF_THE_READER = ("gaussian_window", "head_rope")
ELSEWHERE = {"scripts/slurm_testbed.sh": "tests/slurm", "fairseq-validate": "tests/integration"}
HYDRAS_OWN = ("hydra/", "hydra.")


def commands(path: str) -> Iterator[list[str]]:
    """The words of each command in the page's blocks of shell, without comments."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").replace("$version", "2.0").splitlines():
            for part in line.split(" && "):
                if words := shlex.split(part, comments=True):
                    yield [word for word in words if word != "..."]


CASES = [
    pytest.param(words, id=f"{path}: {' '.join(words)}")
    for path in PAGES
    for words in commands(path)
    if not any(name in word for name in OF_THE_READER for word in words)
]


class Taken(Exception):
    """A parser has read all of a command."""


@pytest.fixture
def reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program ends as soon as a parser has read the last of its words."""
    read = argparse.ArgumentParser.parse_args

    def parse_args(
        parser: argparse.ArgumentParser, given: Sequence[str] | None = None, *rest: Any
    ) -> argparse.Namespace:
        found: argparse.Namespace = read(parser, given, *rest)
        if not given or given[-1] == sys.argv[-1]:
            raise Taken
        return found

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


def is_taken(program: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, *words])
    with pytest.raises(Taken):
        PROGRAMS[program](words)


@pytest.mark.usefixtures("reads_alone")
def test_what_is_no_command_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("table table2 --rose rope", "report --outputs x", "encodings --page x"):
        with pytest.raises(SystemExit):
            is_taken("fairseq_plugins", wrong.split(), monkeypatch)


@pytest.mark.parametrize("words", CASES)
def test_its_program_takes_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "fairseq-train":
        takes_flags(rest)
    elif program == "fairseq-hydra-train":
        takes_overrides(rest)
    elif program in ELSEWHERE:
        assert any(
            Path(program).name in p.read_text() for p in (ROOT / ELSEWHERE[program]).glob("*.py")
        )
    elif program == "python" and rest[0] == "-c":
        compile(rest[1], "<document>", "exec")
    elif program not in OTHERS:
        request.getfixturevalue("reads_alone")
        is_taken(*in_python(words), monkeypatch)


def in_python(words: list[str]) -> tuple[str, list[str]]:
    """The module that a command runs, and the words behind it."""
    program, *rest = words
    if program == "fairseq-pe":
        return "fairseq_plugins", rest
    if program == "scripts/convert_roberta.py":
        return "fairseq_plugins", ["convert", *rest]
    if program.startswith("scripts/"):
        text = (ROOT / program).read_text()
        (line,) = re.findall(r'exec "\$PYTHON" -m (.*) "\$@"', text)
        module, *first = line.split()
        return module, [*first, *rest]
    assert (program, rest[0]) == ("python", "-m"), f"a test must know {program}"
    return rest[1], rest[2:]


def takes_flags(words: list[str]) -> None:
    """fairseq-train's, with the plugin loaded: no option is unknown, and each value possible."""
    where = words.index("--user-dir")
    words = [*words[:where], "--user-dir", str(ROOT / "fairseq_plugins"), *words[where + 2 :]]
    options.parse_args_and_arch(options.get_training_parser(), words)


def takes_overrides(words: list[str]) -> None:
    """fairseq-hydra-train's: the first of each value of a sweep composes."""
    name = words[words.index("--config-name") + 1]
    taken = {"-m", "--config-dir", words[words.index("--config-dir") + 1], "--config-name", name}
    overrides = [word for word in words if word not in taken and not word.startswith(HYDRAS_OWN)]
    first = [re.sub(r"^(model[\w.]*=[\w]+)(,\w+)+$", r"\1", word) for word in overrides]
    config = compose_recipe(ROOT / "configs", name, first)
    assert not OmegaConf.missing_keys(config) - {"task.data"}
