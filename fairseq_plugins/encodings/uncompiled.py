"""Functions that torch.compile leaves alone, without loading the compiler until it is used."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(reason: str) -> Callable[[Function], Function]:
    """Decorator: ``torch.compiler.disable``, which would load torch._dynamo right here.

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

        # What the compiler looks for before it follows a call.
        run._torchdynamo_disable = True  # type: ignore[attr-defined]
        run._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate
