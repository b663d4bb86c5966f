"""KERPLE: biases that are conditionally positive definite kernels of the distance."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.base import EncodingContext, widened
from fairseq_plugins.encodings.pairwise import OffsetBias
from fairseq_plugins.encodings.registry import register_encoding

# Least initial value: the release keeps its parameters above 0.01.
_SMALLEST = 0.01
_LARGEST_POWER = 2.0  # -|s - t|^r is a conditionally positive definite kernel up to here

_SOURCE = "KERPLE (Chi et al. 2022)"


def kerple_log(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Return -r1 log(1 + r2 |n|) (log kernel): (..., T, S), twice (H, 1, 1) -> (..., H, T, S)."""
    return -r1 * torch.log1p(r2 * distance.abs().unsqueeze(-3))


def kerple_power(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Return -r1 |n|^r2 (power kernel): (..., T, S), twice (H, 1, 1) -> (..., H, T, S)."""
    far = distance.abs().unsqueeze(-3)
    # 0^r2 = 0 for every r2 > 0, but its gradient by r2 would be log 0.
    return torch.where(far > 0, -r1 * far.clamp(min=1).pow(r2), 0.0)


@register_encoding(
    "kerple_log",
    known_as=("kerple", "kernel", "logarithmic"),
    summary="a learned logarithmic penalty of the distance per head",
    source=_SOURCE,
    formula="logit - r_h log(1 + c_h |t - s|), r and c learned, positive",
    kernel="log",
)
@register_encoding(
    "kerple_power",
    known_as=("kerple", "kernel"),
    summary="a learned power of the distance as a penalty per head",
    source=_SOURCE,
    formula="logit - r_h |t - s|^(p_h), r and p learned, r > 0 and 0 < p <= 2",
    kernel="power",
)
class Kerple(OffsetBias):
    """logits + k_h(|t - s|), added after scaling; r1 and r2 per head.

    All layers share r1 and r2, as in the release (chijames/KERPLE). Other implementations have a
    pair per layer.

    ``alibi`` is ``power`` with r2 = 1 and fixed slopes. Where the attention is not causal, the
    bias is symmetric.

    The release clamps its parameters in every pass, which stops their gradients outside the range.
    Here the logarithm of r1, that of r2 in ``log`` and the logit of r2 / 2 in ``power`` are
    trained, so that the range is never left. Initial values are those of the release, except near
    0: in ``log`` r1 is uniform in 0..2 and r2 in 0..1, in ``power`` the other way round.

    Args:
        kernel: ``log`` or ``power``.
    """

    keeps_absolute_embedding = False
    shared_across_layers = True

    def __init__(
        self, context: EncodingContext, *, kernel: Literal["log", "power"] = "log"
    ) -> None:
        super().__init__(context)
        self.kernel = kernel
        if kernel == "log":
            self.log_r1 = nn.Parameter(self._uniform(2.0).log())
            self.log_r2 = nn.Parameter(self._uniform(1.0).log())
        else:
            self.log_r1 = nn.Parameter(self._uniform(1.0).log())
            share = self._uniform(_LARGEST_POWER) / _LARGEST_POWER
            self.logit_r2 = nn.Parameter(torch.logit(share))

    def _uniform(self, end: float) -> Tensor:
        """Draw (H,) uniformly from _SMALLEST..end - _SMALLEST."""
        draws = torch.rand(self.context.num_heads, generator=self.context.generator)
        return _SMALLEST + draws * (end - 2 * _SMALLEST)

    def parameters_of_kernel(self) -> tuple[Tensor, Tensor]:
        """Return r1 > 0 and r2 > 0, each (H,); in ``power`` r2 is below 2."""
        r1 = widened(self.log_r1).exp()
        if self.kernel == "log":
            return r1, widened(self.log_r2).exp()
        return r1, _LARGEST_POWER * torch.sigmoid(widened(self.logit_r2))

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Read checkpoints from before the parameter had a name for each kernel, too."""
        if (before := state_dict.pop(f"{prefix}raw_r2", None)) is not None:
            name = "log_r2" if self.kernel == "log" else "logit_r2"
            state_dict[f"{prefix}{name}"] = before
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def bias_at(self, offsets: Tensor, end: int | None) -> Tensor:
        r1, r2 = (r.view(-1, 1, 1) for r in self.parameters_of_kernel())
        make = kerple_log if self.kernel == "log" else kerple_power
        return make(offsets, r1, r2)
