"""Causal linear attention in C++, for float32 on a CPU; optional, see setup.py.

Shapes: B batch, H heads, T queries and keys, D features, M values.
"""

import ctypes
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p
_SIZES = ("batches", "heads", "length", "features", "values")


class _Rows(ctypes.Structure):
    _fields_ = [("data", _POINTER), ("batch", _LONG), ("head", _LONG), ("row", _LONG)]


class _Forward(ctypes.Structure):
    _fields_ = [
        *((name, _LONG) for name in _SIZES),
        *((name, _Rows) for name in ("q", "k", "v", "output")),
        *((name, _POINTER) for name in ("state", "total", "denominator", "floor")),
        ("epsilon", ctypes.c_float),
    ]


class _Backward(ctypes.Structure):
    _fields_ = [
        *((name, _LONG) for name in _SIZES),
        *((name, _Rows) for name in ("q", "k", "v", "grad", "to_q", "to_k", "to_v")),
        *((name, _POINTER) for name in ("state", "total", "divisor", "slope")),
        *((name, _POINTER) for name in ("q_factor", "k_factor", "later", "later_sum")),
    ]


@lru_cache
def library() -> ctypes.CDLL | None:
    """Load the compiled library; None where it was not built."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).parent / f"_linear_attention{suffix}"
        if path.is_file():
            try:
                compiled = ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                return None
            compiled.pe_linear_width.argtypes = [_LONG, _LONG]
            return compiled
    return None


def obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Return why the library cannot compute, or an empty string."""
    if dtype != torch.float32:
        return f"it computes in float32, but the inputs are {dtype}"
    if device.type != "cpu":
        return f"it runs on a CPU, but the inputs are on {device.type!r}"
    if library() is None:
        return "it was not compiled when this package was installed"
    return ""


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether the library takes the sizes of q, k (B, H, T, D) and v (B, H, T, M).

    Subclasses of tensors, as those of fake tensors, may have no memory to read.
    """
    if not all(type(x) is Tensor and x.dtype == torch.float32 and x.numel() for x in (q, k, v)):
        return False
    compiled = library()
    return compiled is not None and compiled.pe_linear_width(q.size(-1), v.size(-1)) > 0


def sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    floor: Tensor | None,
    epsilon: float | None,
    *,
    divides: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Attend by chunks; see ``chunked._sums``, which gives the same."""
    state, total = _own(kv), _own(k_sum)
    output = _empty_like(v)
    denominator = output.new_empty(*q.shape[:3], 1) if divides else None
    q, k, v = (_dense(x) for x in (q, k, v))
    floor = None if floor is None else floor.contiguous()
    given = _Forward(
        *_sizes(q, v),
        *(_rows(x) for x in (q, k, v, output)),
        *(_address(x) for x in (state, total, denominator, floor)),
        -1.0 if epsilon is None else epsilon,
    )
    _call("pe_linear_forward", given)
    return output, denominator, state, total


def gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    later: Tensor,
    later_sum: Tensor,
    divisor: Tensor | None,
    slope: Tensor | None,
    q_factor: Tensor | None,
    k_factor: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute gradients by chunks; see ``chunked._gradients``, which gives the same."""
    later, later_sum = _own(later), _own(later_sum)
    results = [_empty_like(x) for x in (q, k, v)]
    q, k, v, grad = (_dense(x) for x in (q, k, v, grad))
    given_sums = (kv, k_sum, divisor, slope, q_factor, k_factor)
    whole = [None if x is None else x.contiguous() for x in given_sums]
    given = _Backward(
        *_sizes(q, v),
        *(_rows(x) for x in (q, k, v, grad, *results)),
        *(_address(x) for x in (*whole, later, later_sum)),
    )
    _call("pe_linear_backward", given)
    to_q, to_k, to_v = results
    return to_q, to_k, to_v, later, later_sum


def _call(name: str, given: ctypes.Structure) -> None:
    if getattr(library(), name)(ctypes.byref(given), torch.get_num_threads()):
        raise MemoryError("There is no memory for the working space of linear attention.")


def _sizes(q: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.shape, v.size(-1))


def _empty_like(x: Tensor) -> Tensor:
    """Allocate a tensor of this layout, with the features as neighbours in memory."""
    result = torch.empty_like(x)
    return result if result.stride(-1) == 1 else torch.empty(x.shape)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _own(x: Tensor) -> Tensor:
    """Return a contiguous copy, which the library may overwrite."""
    return x.clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> _Rows:
    return _Rows(x.data_ptr(), *x.stride()[:3])


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
