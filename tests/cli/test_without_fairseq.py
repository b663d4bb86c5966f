"""What needs no fairseq works where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What `import fairseq` and find_spec then see is its absence.
RUN = """
import sys
for name in ("fairseq", "hydra", "omegaconf"):
    sys.modules[name] = None
from fairseq_plugins.__main__ import main
status = main(sys.argv[1:])
assert not [name for name in sys.modules if name.startswith("fairseq.")]
sys.exit(status)
"""


def run(*words: str, status: int = 0) -> str:
    """What `python -m fairseq_plugins` prints without fairseq and what comes with it."""
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "lrpe_type8"),
        pytest.param(["--markdown", "--attention", "linear"], "| `rope` |", marks=pytest.mark.slow),
        (["learned+shaw"], "shaw.max_distance="),
    ],
)
def test_the_catalogue_is_whole(words, said):
    assert said in run("encodings", *words)


def test_its_page_is_the_committed_one(tmp_path):
    run("encodings", "--write", str(tmp_path / "page.md"))
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "encodings.md").read_text()


def test_doctor_says_what_is_missing_and_what_still_runs():
    said = run("doctor", status=1)
    assert "fairseq: not installed" in said
    assert "Attention paths" in said and "Training cannot run:" in said
