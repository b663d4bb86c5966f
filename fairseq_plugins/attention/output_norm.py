"""A norm of the output in place of linear attention's denominator.

Shapes: B batch, H heads, T queries, D head_dim.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

OutputNormKind = Literal["layer_norm", "rms_norm"]
OUTPUT_NORMS: tuple[OutputNormKind, ...] = get_args(OutputNormKind)


class OutputNorm(nn.Module):
    """Layer norm or RMS norm of an attention's output over all heads together.

    It is invariant, up to ``eps``, to a positive factor on all outputs of a token.

    Args:
        kind: ``layer_norm`` (Ba et al. 2016; weight and bias) or ``rms_norm`` (Zhang and Sennrich
            2019; weight alone).
        num_heads: H.
        head_dim: D.
        eps: added to the variance, or to the mean square; PyTorch's default of layer norm.

    Attributes:
        weight: (H D,), initially 1.
        bias: (H D,), initially 0; None for an RMS norm.
    """

    def __init__(
        self, kind: OutputNormKind, *, num_heads: int, head_dim: int, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps
        self.heads = (num_heads, head_dim)
        self.weight = nn.Parameter(torch.ones(num_heads * head_dim))
        self.bias = nn.Parameter(torch.zeros_like(self.weight)) if kind == "layer_norm" else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, H, T, D) over heads and features, keeping the dtype of ``x``."""
        joined = x.transpose(1, 2).flatten(2)
        weight, shape = self.weight.to(x.dtype), self.weight.shape
        if self.bias is None:
            normed = F.rms_norm(joined, shape, weight, self.eps)
        else:
            normed = F.layer_norm(joined, shape, weight, self.bias.to(x.dtype), self.eps)
        return normed.unflatten(-1, self.heads).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.weight.numel()}"
