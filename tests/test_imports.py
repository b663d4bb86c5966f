"""What importing this package brings along: fairseq only where it is wanted."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MODELS = "{'pe_transformer_lm', 'pe_transformer', 'pe_roberta'}"
REGISTERED = f"""
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq.criterions import CRITERION_REGISTRY
assert {MODELS} <= set(MODEL_REGISTRY) and "squad" in TASK_REGISTRY
assert "squad" in CRITERION_REGISTRY
import sys
assert "torch._dynamo" not in sys.modules
"""


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, which has to end well."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def test_plain_pytorch_brings_no_fairseq_and_no_compiler_and_leaves_logging_alone():
    done = run(
        "import logging, sys\n"
        "before = logging.root.level, list(logging.root.handlers)\n"
        "import fairseq_plugins.kernels, fairseq_plugins.encodings, fairseq_plugins.attention\n"
        "assert (logging.root.level, logging.root.handlers) == before\n"
        "assert not {'fairseq', 'hydra', 'omegaconf', 'torch._dynamo'} & set(sys.modules)"
    )
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize(
    "imports",
    [
        "import argparse\n"
        "from fairseq import utils\n"
        "utils.import_user_module(argparse.Namespace(user_dir='fairseq_plugins'))",
        pytest.param("import fairseq, fairseq_plugins.encodings", marks=pytest.mark.slow),
        pytest.param(
            "import sys; sys.argv[0] = '/a/bin/fairseq-train'; import fairseq_plugins",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_everything_registers_where_fairseq_is_there_or_it_is_asked_for(imports):
    """As by `--user-dir`; and the compiler is not loaded, which takes a second."""
    run(f"{imports}\n{REGISTERED}")
