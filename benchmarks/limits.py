"""How far what is timed is from the machine's limits: the work of a call, and the machine's peaks.

Work is counted while one untimed call runs, from the operators that PyTorch dispatches, those of
backward and of every ``autograd.Function`` too. Peaks are measured right before and right after a
benchmark, by the same thread or on the same device: a product of two large matrices in the
benchmark's dtype, and a large copy.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.context import Context, Settings
from benchmarks.record import Found, short
from benchmarks.timing import Pace, interleave

Run = Callable[[Settings, Context], Found]
Measured = TypeVar("Measured")
Peaks = dict[str, Any]  # what goes into the JSON: the sizes, and GFLOP/s and GB/s before and after

# They take a whole table and read as much of it as they give.
_PICKING = {"embedding", "gather", "index", "index_select"}
_OVERWRITING = {"copy_", "fill_", "zero_"}


@dataclass(frozen=True)
class Work:
    """What one call does.

    Attributes:
        flop: of the matrix products that it performs, a multiplication and an addition being two;
            None where it is not known.
        bytes: the least that must move. What goes into the call is read once, what comes out of it
            is written once, what it changes both; and what autograd keeps between forward and
            backward is read once more, and written once unless it went in or comes out.
        source: ``counted``, that it is by a formula, or why it is not known.
    """

    flop: int | None = None
    bytes: int | None = None
    source: str = "counted"


def count_work(run: Callable[[], object]) -> Work:
    """The work of a call of ``run``, which has been called before and made what it makes once.

    Kernels that are no operators of PyTorch are not seen; without any product nothing is known.
    A call that cannot be counted is no reason to lose its times: the work says why.
    """
    counter = _Counter()
    try:
        with torch.autograd.graph.saved_tensors_hooks(counter.keep, lambda tensor: tensor), counter:
            result = run()
        gc.collect(1)  # of what is young: else what lies in a cycle would seem to have come out
        moved = counter.moved()
        del result
    except Exception as error:
        return Work(source=f"{type(error).__name__}: {error}")
    if not counter.flop:
        return Work(source="no product among PyTorch's operators")
    return Work(counter.flop, moved)


@dataclass
class _Storage:
    """Bytes of a tensor's memory, and how many of them a call touches (views may do so twice)."""

    size: int
    made: bool
    read: int = 0
    written: int = 0
    kept: int = 0

    def least(self, alive: bool) -> int:
        """The bytes that must move; ``alive``: it is still there after the call."""
        kept = min(self.kept, self.size)
        if self.made:
            return kept + (self.size if alive else kept)
        # What is kept was read, though a kernel that is no operator is not seen to do it.
        return kept + min(max(self.read, kept), self.size) + min(self.written, self.size)


class _Counter(TorchDispatchMode):
    """Adds up products, and follows every storage that an operator touches."""

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0
        # A weak reference lets the memory go, but no other storage gets its address.
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
                continue  # of a view, which moves nothing
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
        """Note what autograd keeps; given back detached, which a cycle of references needs."""
        self._storage(tensor, made=False).kept += tensor.nbytes
        return tensor.detach()

    def moved(self) -> int:
        """The least bytes, once the call is over and its result is still held."""
        return sum(s.least(not ref.expired()) for ref, s in self.storages.items())


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _flop(packet: Any, args: Any, kwargs: Any, named: Mapping[str, Any], result: Any) -> int:
    """Of one operator, 0 for those that are no products of matrices."""
    name = packet.__name__
    if name.startswith("_scaled_dot_product") and "query" in named:
        return _flop_of_attention(named, backward="backward" in name)
    # In place (`baddbmm_`) it is the same product.
    formula = flop_registry.get(getattr(torch.ops.aten, name.removesuffix("_"), None))
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


def _flop_of_attention(named: Mapping[str, Any], *, backward: bool) -> int:
    """PyTorch's fused attention, whose causal kernels leave out later keys.

    Two products forward; five backward, where the weights are computed anew. Its own counter has no
    formula for the kernel of a CPU, and counts later keys.
    """
    batch, heads, queries, width = named["query"].shape
    keys, values = named["key"].size(2), named["value"].size(3)
    pairs = queries * (queries + 1) // 2 if named.get("is_causal") else queries * keys
    each = 3 * width + 2 * values if backward else width + values
    return 2 * batch * heads * pairs * each


def peak_settings(device: str, quick: bool) -> Settings:
    """Sizes that no cache holds and that a peak is reached at."""
    gpu = device == "gpu"
    return {
        "gemm_size": 64 if quick else 8192 if gpu else 1024,
        "copy_bytes": 2**16 if quick else 2**31 if gpu else 2**28,
        "repetitions": 3 if quick else 20 if gpu else 9,
    }


def measure_peaks(sizes: Settings, context: Context) -> tuple[float, float]:
    """GFLOP/s of a product of two square matrices, and GB/s of a copy, read and written.

    The best of several repetitions, in which the two take turns.
    """
    side, count = sizes["gemm_size"], sizes["repetitions"]
    left, right, product = torch.randn(3, side, side, device=context.device).to(context.dtype)
    source = torch.ones(sizes["copy_bytes"] // 4, device=context.device)
    target = torch.empty_like(source)
    samples = interleave(
        {
            "gemm": lambda: torch.mm(left, right, out=product),
            "copy": lambda: target.copy_(source),
        },
        Pace(0.0, count, count),
        context.device,
    )
    gemm, copy = (min(samples.seconds[name]) for name in ("gemm", "copy"))
    return 2e-9 * side**3 / gemm, 1e-9 * (source.nbytes + target.nbytes) / copy


def with_peaks(
    run: Callable[[], Measured], sizes: Settings, context: Context
) -> tuple[Measured, Peaks]:
    """What ``run`` gives, and the peaks right before it and right after it."""
    before = measure_peaks(sizes, context)
    result = run()
    after = measure_peaks(sizes, context)
    gemm, copy = ([short(value) for value in pair] for pair in zip(before, after, strict=True))
    dtype = str(context.dtype).removeprefix("torch.")
    return result, {**sizes, "gemm_dtype": dtype, "gflop_per_s": gemm, "gb_per_s": copy}


def join_peaks(peaks: Sequence[Peaks]) -> Peaks:
    """Those of several measurements with the same sizes as one, in their order."""
    joined = dict(peaks[0])
    for key in ("gflop_per_s", "gb_per_s"):
        joined[key] = [value for one in peaks for value in one[key]]
    return joined


def rates(work: Work, seconds: float, peaks: Peaks) -> dict[str, float | None]:
    """Work per second, and its share of the best peak."""
    result: dict[str, float | None] = {}
    for amount, rate, share in (
        (work.flop, "gflop_per_s", "of_peak_gemm"),
        (work.bytes, "gb_per_s", "of_peak_copy"),
    ):
        value = None if amount is None else 1e-9 * amount / seconds
        result[rate] = None if value is None else short(value)
        result[share] = None if value is None else short(value / max(peaks[rate]))
    return result


def between_peaks(run: Run, shares: Sequence[str] = ()) -> Run:
    """A benchmark between two measurements of the peaks, with the rates of all that it timed.

    Args:
        run: the benchmark; its settings have ``peaks``.
        shares: contenders whose share of the peak product is one of the ratios, by such keys as
            ``linear/peak_gemm@512``.
    """

    def measured(settings: Settings, context: Context) -> Found:
        found, peaks = with_peaks(lambda: run(settings, context), settings["peaks"], context)
        found.peaks = peaks
        for key, work in found.work.items():
            found.rates[key] = rates(work, found.medians[key], peaks)
            name, _, size = key.partition("@")
            share = found.rates[key]["of_peak_gemm"]
            if name in shares and share is not None:
                found.ratios[f"{name}/peak_gemm@{size}"] = share
        return found

    return measured
