"""Table of the attention kernels by encoding and device, for docs/performance.md."""

from collections.abc import Sequence

from fairseq_plugins.catalog.facts import Facts
from fairseq_plugins.common import tables

HEADINGS = ("encodings", "compute capability 8.0 or more", "V100", "CPU", "memory")

_BLOCKS = "added for 256 queries at a time"
_T, _T_S = "length", "length squared"
# For each `Facts.softmax_kernel`: the kernel on three devices, and the growth of memory.
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


def kernel_table(encodings: Sequence[Facts]) -> str:
    """Return a table in Markdown with a row per kernel and the names of its encodings."""
    rows = []
    for kernel, cells in _SOFTMAX.items():
        names = [f"`{facts.name}`" for facts in encodings if facts.softmax_kernel == kernel]
        if names:
            rows.append([f"softmax, {len(names)}: {', '.join(names)}", *cells])
    count = sum(facts.under("linear") == "yes" for facts in encodings)
    rows.append([f"linear, all {count} that it supports", *_LINEAR])
    return tables.markdown_table(HEADINGS, rows)
