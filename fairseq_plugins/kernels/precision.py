"""In which precision the kernels add up, whatever surrounds them."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def without_autocast(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """``function`` with autocast off on the device of its first tensor, gradients included.

    Autocast (``--amp``) would make matrix products of float32 sums in half precision, where sums
    over many keys are rounded away or leave float16's range. One of the arguments that have no
    name must be a tensor.
    """

    @wraps(function)
    def run(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        device = next(a.device.type for a in args if isinstance(a, Tensor))
        if not torch.is_autocast_enabled(device):
            return function(*args, **options)
        with torch.autocast(device, enabled=False):
            return function(*args, **options)

    return run
