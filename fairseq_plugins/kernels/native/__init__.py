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
        *((name, _POINTER) for name in ("state", "total", "size", "denominator", "floor")),
        *((name, ctypes.c_float) for name in ("min_cosine", "epsilon")),
    ]


class _Backward(ctypes.Structure):
    _fields_ = [
        *((name, _LONG) for name in _SIZES),
        *((name, _Rows) for name in ("q", "k", "v", "output", "grad", "to_q", "to_k", "to_v")),
        *((name, _POINTER) for name in ("state", "total", "size", "denominator", "floor")),
        *((name, _POINTER) for name in ("later", "later_total", "later_size")),
        *((name, ctypes.c_float) for name in ("min_cosine", "epsilon")),
    ]


@lru_cache
def library() -> ctypes.CDLL | None:
    """Load the compiled library; None where it was not built."""
    for suffix in reversed(EXTENSION_SUFFIXES):  # those of every Python before this one's
        path = Path(__file__).parent / f"_linear_attention{suffix}"
        if path.is_file():
            try:
                compiled = ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                return None
            compiled.pe_linear_width.argtypes = [_LONG, _LONG]
            return compiled
    return None


# A constant, since Dynamo cannot trace the search.
IS_BUILT = library() is not None


def obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Return why the library cannot compute, or an empty string."""
    if dtype != torch.float32:
        return f"it computes in float32, but the inputs are {dtype}"
    if device.type != "cpu":
        return f"it runs on a CPU, but the inputs are on {device.type!r}"
    if not IS_BUILT:
        return "it was not compiled when this package was installed"
    return ""


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether the library supports the sizes of q, k (B, H, T, D) and v (B, H, T, M).

    Subclasses of tensors, such as fake tensors, may have no memory to read.
    """
    if not all(
        type(x) is Tensor and x.is_cpu and x.dtype == torch.float32 and x.numel() for x in (q, k, v)
    ):
        return False
    compiled = library()
    return compiled is not None and compiled.pe_linear_width(q.size(-1), v.size(-1)) > 0


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: Tensor,
    k_sum: Tensor,
    k_norm: Tensor,
    min_cosine: float | None,
    epsilon: float | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor, Tensor]:
    """Compute ``chunked.attend_chunks`` by the compiled library."""
    state, total, size = _copy(kv), _copy(k_sum), _copy(k_norm)
    output, denominator, floor = empty_like(v), None, None
    if min_cosine is not None:
        denominator = q.new_empty(*q.shape[:3], 1)
        floor = torch.empty_like(denominator) if min_cosine else None
    q, k, v = (_dense(x) for x in (q, k, v))
    arguments = _Forward(
        *_sizes(q, v),
        *(_rows(x) for x in (q, k, v, output)),
        *(_address(x) for x in (state, total, size, denominator, floor)),
        *_clamp(min_cosine, epsilon),
    )
    _call("pe_linear_forward", arguments)
    return output, denominator, floor, state, total, size


def gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sums: tuple[Tensor, Tensor, Tensor],
    saved: tuple[Tensor | None, Tensor | None, Tensor | None],
    grad: Tensor,
    later: tuple[Tensor, Tensor, Tensor | None],
    min_cosine: float | None,
    epsilon: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Compute ``chunked.chunk_gradients`` by the compiled library."""
    lasts = [None if x is None else _copy(x) for x in later]
    results = [empty_like(x) for x in (q, k, v)]
    output, denominator, floor = saved
    # Without a division the output is not read.
    inputs = [_dense(x) for x in (q, k, v, grad if output is None else output, grad)]
    whole = [None if x is None else x.contiguous() for x in (*sums, denominator, floor)]
    arguments = _Backward(
        *_sizes(q, v),
        *(_rows(x) for x in (*inputs, *results)),
        *(_address(x) for x in (*whole, *lasts)),
        *_clamp(min_cosine, epsilon),
    )
    _call("pe_linear_backward", arguments)
    to_q, to_k, to_v = results
    to_kv, to_sum, to_norm = lasts
    assert to_kv is not None and to_sum is not None
    return to_q, to_k, to_v, to_kv, to_sum, to_norm


def _clamp(min_cosine: float | None, epsilon: float | None) -> tuple[float, float]:
    return min_cosine or 0.0, -1.0 if epsilon is None else epsilon


def _call(name: str, arguments: ctypes.Structure) -> None:
    if getattr(library(), name)(ctypes.byref(arguments), torch.get_num_threads()):
        raise MemoryError("The compiled linear attention could not allocate its working memory.")


def _sizes(q: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.shape, v.size(-1))


def empty_like(x: Tensor) -> Tensor:
    """Allocate a tensor of this layout, with the features as neighbours in memory."""
    result = torch.empty_like(x)
    return result if result.stride(-1) == 1 else x.new_empty(x.shape)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _copy(x: Tensor) -> Tensor:
    """Return a contiguous copy, which the library may overwrite."""
    return x.clone(memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> _Rows:
    return _Rows(x.data_ptr(), *x.stride()[:3])


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
