"""Who may import whom: one direction, and plain PyTorch without fairseq."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "fairseq_plugins"
# Each may import those before it and itself.
ORDER = ["kernels", "encodings", "attention", "modules", "models", "reproduce"]
MODULES = sorted(PACKAGE.rglob("*.py"))
PLAIN = [p for layer in ORDER[:3] for p in sorted((PACKAGE / layer).glob("*.py"))]
ADAPTER = PACKAGE / "attention" / "multihead.py"


def imported(path: Path) -> set[str]:
    """The full names of the modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute, for fairseq's user-dir"
            assert node.module is not None
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(path: Path) -> str | None:
    name = path.relative_to(PACKAGE).parts[0]
    return name if name in ORDER else None


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_dependencies_point_one_way(path):
    own = layer(path)
    used = {n.split(".")[1] for n in imported(path) if n.startswith("fairseq_plugins.")}
    if own is None:
        return
    later = ORDER[ORDER.index(own) + 1 :]
    assert not used & set(later), f"{own} must not import {sorted(used & set(later))}"


@pytest.mark.parametrize("path", PLAIN, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_adapter_knows_fairseq(path):
    fairseq = {n for n in imported(path) if n == "fairseq" or n.startswith("fairseq.")}
    if path == ADAPTER:
        assert fairseq
    else:
        assert not fairseq
        assert "fairseq_plugins.attention.multihead" not in imported(path)


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


def test_everything_works_where_fairseq_is_not_installed():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_FAIRSEQ],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("fine")
