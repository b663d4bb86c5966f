"""The dtype of sums, and protection of the kernels' precision from autocast."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def wide_type(x: Tensor) -> torch.dtype:
    """Return the dtype of sums over ``x``, float32 or wider."""
    return torch.promote_types(x.dtype, torch.float32)


def without_autocast(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to run with autocast off on the device of its first tensor.

    Autocast (``--amp``) would compute matrix products of float32 sums in half precision, where sums
    over many keys are rounded away or leave float16's range. Only positional arguments are
    searched for tensors.
    """

    @wraps(function)
    def run(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        # None for a backward pass without any gradient. There is no autocast on meta.
        device = next((a.device.type for a in args if isinstance(a, Tensor)), None)
        if device in (None, "meta") or not torch.is_autocast_enabled(device):
            return function(*args, **options)
        with torch.autocast(device, enabled=False):
            return function(*args, **options)

    return run
