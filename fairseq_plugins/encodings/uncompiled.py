"""A decorator for functions that torch.compile must not trace.

It does not load the compiler, unlike ``torch.compiler.disable``.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(reason: str) -> Callable[[Function], Function]:
    """Decorate a function as ``torch.compiler.disable`` does, without loading torch._dynamo.

    Args:
        reason: shown where a graph breaks.
    """

    def decorate(function: Function) -> Function:
        disabled: list[Any] = []

        @wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **options)
            if not disabled:
                disabled.append(torch.compiler.disable(function, reason=reason))
            return disabled[0](*args, **options)

        # Attributes by which the compiler decides whether to trace a call.
        run._torchdynamo_disable = True  # type: ignore[attr-defined]
        run._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate
