"""Every command that the documents show is one that its own program takes.

Options, choices and overrides are read by the parsers that read them in use; nothing is started:
test_docs_commands_run.py does that, where no data are needed.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from omegaconf import OmegaConf

from benchmarks import __main__ as bench
from benchmarks import gpu_campaign, job_memory, table9
from fairseq_plugins import __main__ as fairseq_pe
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.evaluation import glue_command as glue
from fairseq_plugins.evaluation import squad_command as squad
from tests.documentation import PAGES, ROOT, commands, in_python
from tests.recipes import compose_recipe

PROGRAMS = {
    "benchmarks": bench.main,
    "benchmarks.gpu_campaign": gpu_campaign.main,
    "benchmarks.job_memory": job_memory.main,
    "benchmarks.table9": table9.main,
    "fairseq_plugins": fairseq_pe.main,
    "fairseq_plugins.glue": glue.main,
    "fairseq_plugins.squad": squad.main,
}
# Other people's programs, and words of the shell.
OTHERS = {"pip", ".venv/bin/pip", "tensorboard", "apptainer", "export", "source", "for", "done"}
# What a reader of docs/extending.md and CONTRIBUTING.md writes; test_docs.py runs it.
OF_THE_READER = ("gaussian_window", "head_rope", "biases")
ELSEWHERE = {"scripts/slurm_testbed.sh": "tests/slurm", "fairseq-validate": "tests/integration"}
HYDRAS_OWN = ("hydra/", "hydra.")


CASES = [
    pytest.param(command.words, id=str(command))
    for page in PAGES
    for command in commands(page)
    if not any(name in word for name in OF_THE_READER for word in command.words)
]


class Taken(Exception):
    """A parser has read all of a command."""


@pytest.fixture
def reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program ends as soon as a parser has read the last of its words."""

    def stop_after(kind: type[argparse.ArgumentParser]) -> None:
        read = kind.parse_args

        def parse_args(
            parser: argparse.ArgumentParser, given: Sequence[str] | None = None, *rest: Any
        ) -> argparse.Namespace:
            found: argparse.Namespace = read(parser, given, *rest)
            if not given or given[-1] == sys.argv[-1]:
                raise Taken
            return found

        monkeypatch.setattr(kind, "parse_args", parse_args)

    for kind in (argparse.ArgumentParser, Parser):
        stop_after(kind)


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
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    program, *rest = [word for word in words if word != "..."]
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
    elif program not in OTHERS and "--help" not in rest:
        request.getfixturevalue("reads_alone")
        is_taken(*in_python((program, *rest)), monkeypatch)


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
