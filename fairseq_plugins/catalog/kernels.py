"""Table of the attention kernels by encoding and device, for docs/performance.md."""

from collections.abc import Iterable

from fairseq_plugins.catalog.facts import Facts
from fairseq_plugins.common import tables

COMMAND = "fairseq-pe encodings --kernels"
HEADINGS = ("encodings", "compute capability 8.0 or more", "V100", "CPU", "memory")

_BLOCKS = "added for 256 queries at a time"
_T, _T_S = "length", "length squared"
# Of each kind of `Facts.softmax_kernel`: the three devices, and how memory grows.
_SOFTMAX = {
    "fused": ("flash; memory-efficient in float32", "memory-efficient", "PyTorch's fused", _T),
    "pairs": (
        f"memory-efficient, {_BLOCKS}; or FlexAttention",
        f"memory-efficient, {_BLOCKS}",
        f"head by head, {_BLOCKS}",
        _T,
    ),
    "bias": (*[f"memory-efficient, {_BLOCKS}"] * 2, f"head by head, {_BLOCKS}", _T),
    "logits": (*[f"memory-efficient, {_BLOCKS}"] * 2, f"head by head, {_BLOCKS}", _T),
    "weights": (*["products with all weights"] * 3, _T_S),
}
_LINEAR = ("Triton", "PyTorch, all chunks at once", "C++; PyTorch beyond float32", _T)


def kernel_table(found: Iterable[Facts]) -> str:
    """Return a table in Markdown: a row for each kernel, with the names that it runs for."""
    facts = list(found)
    lines = []
    for kind, cells in _SOFTMAX.items():
        names = [f"`{f.name}`" for f in facts if f.softmax_kernel == kind]
        if names:
            lines.append([f"softmax, {len(names)}: {', '.join(names)}", *cells])
    count = sum(f.under("linear") == "yes" for f in facts)
    lines.append([f"linear, all {count} that it supports", *_LINEAR])
    return tables.markdown_table(HEADINGS, lines)
