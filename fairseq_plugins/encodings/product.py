"""The multiplicative form of an absolute encoding."""

import torch
from torch import Tensor

from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.registry import register_encoding


@register_encoding(
    "product",
    summary="one learned vector per position, multiplied with the tokens",
    source="Su's survey, Product-based",
    formula="x_s * p_s, feature by feature, a learned vector per position",
)
class Product(Learned):
    """x * p with a learned table p, initially from N(1, 1/C), so that x changes little at first.

    The survey gives no fixed table, and a sinusoid would erase features where it is near 0.
    """

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        with torch.no_grad():
            self.weight.add_(1.0)

    def embed(self, x: Tensor, positions: Tensor, **_: Tensor | None) -> Tensor:
        """Multiply x by p: (B, T, C) -> (B, T, C)."""
        return (x * self.rows(positions)).to(x.dtype)
