"""A repository of its own with short trainings at scale toy and the data of every family."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.helpers import REPOSITORY

# What makes the data, by the names of the folders that come out.
MLM = (
    "fairseq_plugins.data.prepare_mlm", "toy", "--output", "data/toy-mlm", "--merges", "60",
    "--train-sentences", "600", "--valid-sentences", "60", "--test-sentences", "60",
)  # fmt: skip
LM = (
    "fairseq_plugins.data.prepare", "toy", "--output", "data/toy",
    "--train-sentences", "600", "--valid-sentences", "60", "--test-sentences", "60",
)  # fmt: skip
GLUE = (
    "fairseq_plugins.glue.prepare_generated", "--bpe", "data/toy-mlm/bpe",
    "--output", "data/toy-glue", "--train-examples", "200", "--dev-examples", "60",
)  # fmt: skip
SQUAD = tuple(
    ("fairseq_plugins.squad", "toy", "--version", version, "--bpe", "data/toy-mlm/bpe",
     "--output", f"data/toy-squad-v{version}", "--train-texts", "40", "--valid-texts", "10")
    for version in ("1.1", "2.0")
)  # fmt: skip
MT = (
    "fairseq_plugins.translation.prepare", "toy", "--output", "data/toy-mt", "--merges", "60",
    "--train-pairs", "600", "--valid-pairs", "60", "--test-pairs", "60",
)  # fmt: skip


def make_repository(
    folder: Path, scales: Mapping[str, Mapping[str, Any]], data: Sequence[Sequence[str]]
) -> Path:
    """Copy package and configurations, change scales, make the data; returns the folder.

    Args:
        folder: an empty one.
        scales: file below configs/scale -> group -> what it sets beside or in place of its own.
        data: the commands above.
    """
    shutil.copytree(REPOSITORY / "configs", folder / "configs")
    for name, changes in scales.items():
        scale = folder / "configs" / "scale" / name
        content: dict[str, Any] = yaml.safe_load(scale.read_text())
        for group, options in changes.items():
            content.setdefault(group, {}).update(options)
        scale.write_text("# @package _global_\n" + yaml.safe_dump(content))
    # A copy, so that the commands' own folder is this one.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "fairseq_plugins", folder / "fairseq_plugins", ignore=ignored)
    run_all(folder, data)
    return folder


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    """A module of the package as a process with a process group of its own."""
    return _start(root, "-m", *words)


def _start(root: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(root: Path, *words: str) -> str:
    """Its output; it must end well."""
    return _finish(start(root, *words))


# Importing torch and fairseq takes longer than such a command does.
_ONE_AFTER_THE_OTHER = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
"""


def run_all(root: Path, commands: Iterable[Sequence[str]]) -> str:
    """Run modules of the package one after the other in one process; returns their output."""
    return _finish(_start(root, "-c", _ONE_AFTER_THE_OTHER, json.dumps([*commands])))


def _finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def kill(process: subprocess.Popen[str]) -> None:
    """As a power cut: the process and what it has started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
