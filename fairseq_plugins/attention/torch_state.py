"""State dicts of PyTorch's `nn.MultiheadAttention` for this package's layer."""

from typing import Any

from torch import nn


def split_projections(module: nn.Module, state: dict[str, Any], prefix: str, *more: Any) -> None:
    """Convert a state dict of PyTorch's module: split its joint projection into three."""
    for kind in ("weight", "bias"):
        joined = state.pop(f"{prefix}in_proj_{kind}", None)
        if joined is not None:
            for name, part in zip("qkv", joined.chunk(3), strict=True):
                state[f"{prefix}{name}_proj.{kind}"] = part
    for name in "qkv":
        if f"{prefix}{name}_proj_weight" in state:
            state[f"{prefix}{name}_proj.weight"] = state.pop(f"{prefix}{name}_proj_weight")
