"""The work of a call, and the machine's peaks to which it is compared.

Work is counted in an untimed call from PyTorch's dispatched operators, backward included. Peaks are
measured right before and after a benchmark: a product of two large matrices in the benchmark's
dtype, and a large copy.
"""

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.context import Context, Settings
from benchmarks.record import short
from benchmarks.timing import Pace, interleave
from fairseq_plugins.kernels.backend import VARIABLE

Peaks = dict[str, Any]  # recorded in the JSON: sizes, GFLOP/s and GB/s before and after

# These take a whole table and read only as much as they return.
_PICKING = {"embedding", "gather", "index", "index_select"}
_OVERWRITING = {"copy_", "fill_", "zero_"}


@dataclass(frozen=True)
class Work:
    """The work of a call.

    Attributes:
        flop: operations of matrix products, two per multiply-add; None if unknown.
        bytes: the least bytes to move: inputs are read once, outputs written once; tensors that
            autograd keeps for backward are read once more, and written once if they are new.
        source: ``counted``, a formula, or why the work is unknown.
    """

    flop: int | None = None
    bytes: int | None = None
    source: str = "counted"


def count_work(run: Callable[[], object]) -> Work:
    """Count the work of a call of ``run``, after a warm-up.

    Kernels that are not PyTorch operators are not seen; without any product the work is unknown. In
    place of this project's compiled CPU kernel its form in PyTorch is counted, with the same
    products. Errors are returned as `source`, so that times are kept.
    """
    counter = _Counter()
    forced = {} if torch.cuda.is_available() or os.environ.get(VARIABLE) else {VARIABLE: "torch"}
    try:
        with (
            mock.patch.dict(os.environ, forced),
            torch.autograd.graph.saved_tensors_hooks(counter.keep, lambda tensor: tensor),
            counter,
        ):
            result = run()
        gc.collect(1)  # young cycles would else count as outputs
        moved = counter.moved()
        del result
    except Exception as error:
        return Work(source=f"{type(error).__name__}: {error}")
    if not counter.flop:
        return Work(source="no product among PyTorch's operators")
    return Work(counter.flop, moved)


@dataclass
class _Storage:
    """Bytes of a tensor's memory, and those that a call touches (views may repeat them)."""

    size: int
    made: bool
    read: int = 0
    written: int = 0
    kept: int = 0

    def least(self, alive: bool) -> int:
        """Return the least bytes to move; ``alive``: whether the memory outlives the call."""
        kept = min(self.kept, self.size)
        if self.made:
            return kept + (self.size if alive else kept)
        # Kept tensors were read, if only by kernels that are not operators.
        return kept + min(max(self.read, kept), self.size) + min(self.written, self.size)


class _Counter(TorchDispatchMode):
    """A counter of products, and of the bytes of every storage that an operator touches."""

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0
        # Weak references free the memory, but keep its address from being reused.
        self.storages: dict[StorageWeakRef, _Storage] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        arguments = func._schema.arguments
        named = {a.name: value for a, value in zip(arguments, args, strict=False)} | kwargs
        self.flop += _flop(func.overloadpacket, args, kwargs, named, result)
        for argument in arguments:
            self._touch(func.overloadpacket.__name__, argument, named.get(argument.name), result)
        for tensor in _tensors(result):
            self._storage(tensor, made=True)  # unless an argument has it
        return result

    def _touch(self, operator: str, argument: Any, value: Any, result: Any) -> None:
        alias = argument.alias_info
        for tensor in _tensors(value):
            storage, size = self._storage(tensor, made=False), tensor.nbytes
            if alias is not None and not alias.is_write:
                continue  # a view moves nothing
            if operator in _PICKING:
                size = min(size, sum(t.nbytes for t in _tensors(result)))
            if alias is not None:
                storage.written += size
            if alias is None or not (argument.kwarg_only or operator in _OVERWRITING):
                storage.read += size

    def _storage(self, tensor: Tensor, *, made: bool) -> _Storage:
        memory = tensor.untyped_storage()
        return self.storages.setdefault(StorageWeakRef(memory), _Storage(memory.nbytes(), made))

    def keep(self, tensor: Tensor) -> Tensor:
        """Record a tensor kept by autograd; detached, to avoid a reference cycle."""
        self._storage(tensor, made=False).kept += tensor.nbytes
        return tensor.detach()

    def moved(self) -> int:
        """Sum the least bytes after the call, while its result is held."""
        return sum(s.least(not ref.expired()) for ref, s in self.storages.items())


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _flop(packet: Any, args: Any, kwargs: Any, named: Mapping[str, Any], result: Any) -> int:
    """Count the operations of an operator; 0 unless it is a matrix product."""
    name = packet.__name__
    if name.startswith("_scaled_dot_product") and "query" in named:
        return _flop_of_attention(named, backward="backward" in name)
    # In-place variants (`baddbmm_`) are the same product.
    formula = flop_registry.get(getattr(torch.ops.aten, name.removesuffix("_"), None))
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _flop_of_attention(named: Mapping[str, Any], *, backward: bool) -> int:
    """Count PyTorch's fused attention, without later keys of causal kernels.

    Two products forward, five backward (weights are recomputed). PyTorch's own counter lacks the
    CPU kernel and counts later keys.
    """
    batch, heads, queries, width = named["query"].shape
    keys, values = named["key"].size(2), named["value"].size(3)
    pairs = queries * (queries + 1) // 2 if named.get("is_causal") else queries * keys
    each = 3 * width + 2 * values if backward else width + values
    return 2 * batch * heads * pairs * each


def measure_peaks(sizes: Settings, context: Context) -> Peaks:
    """Measure GFLOP/s of a matrix product and GB/s of a copy, the best of several turns."""
    side, count = sizes["gemm_size"], sizes["repetitions"]
    left, right, product = torch.randn(3, side, side, device=context.device).to(context.dtype)
    source = torch.ones(sizes["copy_bytes"] // 4, device=context.device)
    target = torch.empty_like(source)
    calls = {
        "gemm": lambda: torch.mm(left, right, out=product),
        "copy": lambda: target.copy_(source),
    }
    seconds = interleave(calls, Pace(0.0, count, count), context.device)
    return {
        **sizes,
        "gemm_dtype": str(context.dtype).removeprefix("torch."),
        "gflop_per_s": [short(2e-9 * side**3 / min(seconds["gemm"]))],
        "gb_per_s": [short(1e-9 * (source.nbytes + target.nbytes) / min(seconds["copy"]))],
    }


def join_peaks(peaks: Sequence[Peaks]) -> Peaks:
    """Join the peaks of several measurements with equal sizes."""
    rates = {key: [v for one in peaks for v in one[key]] for key in ("gflop_per_s", "gb_per_s")}
    return {**peaks[0], **rates}


def rates(work: Work, seconds: float, peaks: Peaks) -> dict[str, float | None]:
    """Compute work per second, and its share of the best peak; None where it is unknown."""
    found: dict[str, float | None] = {}
    for amount, rate, share in (
        (work.flop, "gflop_per_s", "of_peak_gemm"),
        (work.bytes, "gb_per_s", "of_peak_copy"),
    ):
        value = None if amount is None else 1e-9 * amount / seconds
        found[rate] = None if value is None else short(value)
        found[share] = None if value is None else short(value / max(peaks[rate]))
    return found
