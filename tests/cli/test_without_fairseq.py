"""What needs no fairseq works where there is none."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What `import fairseq` and find_spec then see is its absence.
RUN = """
import json, sys
for name in ("fairseq", "hydra", "omegaconf"):
    sys.modules[name] = None
from fairseq_plugins.__main__ import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    print(end="\\f")
assert not [name for name in sys.modules if name.startswith("fairseq.")]
sys.exit(status)
"""


def run(*commands: Sequence[str], status: int = 0) -> list[str]:
    """What each command prints without fairseq and what comes with it; the last one's status."""
    program = [sys.executable, "-c", RUN, json.dumps(commands)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout.split("\f")[:-1]


def test_the_catalogue_is_whole_and_its_page_the_committed_one(tmp_path):
    page = tmp_path / "page.md"
    every, one, linear, _ = run(
        ["encodings"],
        ["encodings", "learned+shaw"],
        ["encodings", "--markdown", "--attention", "linear"],
        ["encodings", "--write", str(page)],
    )
    assert "lrpe_type8" in every
    assert "shaw.max_distance=" in one
    assert "| `rope` |" in linear
    assert page.read_text() == (ROOT / "docs" / "encodings.md").read_text()


def test_doctor_says_what_is_missing_and_what_still_runs():
    (said,) = run(["doctor"], status=1)
    assert "fairseq: not installed" in said
    assert "Attention paths" in said and "Training cannot run:" in said
