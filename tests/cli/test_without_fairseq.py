"""What needs no fairseq works where there is none."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What `import fairseq` and find_spec then see is its absence.
RUN = """
import json, sys
for name in ("fairseq", "hydra", "omegaconf"):
    sys.modules[name] = None
import torch
import fairseq_plugins.kernels
from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import ENCODINGS, build_encoding
at = torch.arange(5).unsqueeze(0)
for name, entry in ENCODINGS.items():
    shape = dict(num_heads=2, head_dim=8, causal=entry.refusal(causal=True) is None)
    encoding = build_encoding(name, vocab_size=9, **shape)
    attention = build_attention("vanilla", encoding, **shape)
    q = torch.randn(1, 2, 5, 8)
    assert attention(q, q, q, q_positions=at, k_positions=at)[0].shape == q.shape
from fairseq_plugins.__main__ import main
statuses = []
for words in json.loads(sys.argv[1]):
    statuses.append(main(words))
    print(end="\\f")
assert not [name for name in sys.modules if name.startswith("fairseq.")]
print(json.dumps(statuses))
"""


def test_every_encoding_works_and_the_doctor_says_what_is_missing(tmp_path):
    """In one process, whose imports take longer than all of the rest."""
    page = tmp_path / "page.md"
    commands = [
        ["encodings"],
        ["encodings", "learned+shaw"],
        ["encodings", "--markdown", "--attention", "linear"],
        ["encodings", "--write", str(page)],
        ["doctor"],
    ]
    program = [sys.executable, "-c", RUN, json.dumps(commands)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    every, one, linear, _, doctor, statuses = done.stdout.split("\f")
    assert json.loads(statuses) == [0, 0, 0, 0, 1]
    assert "lrpe_type8" in every
    assert "shaw.max_distance=" in one
    assert "| `rope` |" in linear
    assert page.read_text() == (ROOT / "docs" / "encodings.md").read_text()
    assert "fairseq: not installed" in doctor
    assert "Attention paths" in doctor and "Training cannot run:" in doctor
