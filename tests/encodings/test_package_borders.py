"""Encodings and attention where there is no fairseq; who may import whom is in .importlinter."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = None  # What `import fairseq` and find_spec then see is its absence.
import torch
import fairseq_plugins.kernels, fairseq_plugins.encodings, fairseq_plugins.attention
from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import ENCODINGS, build_encoding
at = torch.arange(5).unsqueeze(0)
for name, entry in ENCODINGS.items():
    shape = dict(num_heads=2, head_dim=8, causal=entry.refusal(causal=True) is None)
    encoding = build_encoding(name, vocab_size=9, **shape)
    attention = build_attention("vanilla", encoding, **shape)
    q = torch.randn(1, 2, 5, 8)
    assert attention(q, q, q, q_positions=at, k_positions=at)[0].shape == q.shape
assert not [m for m in sys.modules if m.startswith("fairseq.")]
print("fine", len(ENCODINGS))
"""


LIGHT = """
import sys, torch
import fairseq_plugins.encodings
assert "torch._dynamo" not in sys.modules, "the compiler is loaded where nobody compiles"
print("fine")
"""


def test_encodings_are_imported_without_the_compiler():
    result = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "fine\n", result.stderr


def test_everything_works_where_fairseq_is_not_installed():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_FAIRSEQ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("fine")
