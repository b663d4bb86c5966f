"""Stochastic positional encoding by filtered white noise (convSPE).

Shapes: H heads, T tokens, D head_dim, R realisations, U positions that occur, L taps.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.checks import check_at_least
from fairseq_plugins.encodings.noise import runs
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.spe import PAPER, StochasticEncoding
from fairseq_plugins.encodings.uncompiled import uncompiled


@register_encoding(
    "spe_conv",
    known_as=("convspe",),
    summary="filtered white noise whose expected product is a learned kernel per feature",
    source=f"{PAPER}, convSPE",
    formula="E[logit] = sum_d P_d(s - t) q_d k_d / sqrt(D), P_d(x) = sum_j u_d[j] w_d[j + x]",
)
class ConvSPE(StochasticEncoding):
    """SPE with P_hd(x) = sum_j u_j w_(j + x), a learned filter u for queries and w for keys.

    qbar(s) = sum_j u_j z(s + j) and kbar(t) = sum_j w_j z(t + j), j = 0..kernel_size - 1, with
    white noise z over time steps. P is zero from a distance of ``kernel_size`` on.

    z is drawn in blocks of time steps with a seed each, so that the code of a position does not
    depend on the sequence's length; only the blocks in use are cached.

    The parameters are the filters times sqrt(kernel_size), initially uniform in 0..sqrt(3), which
    is our choice: the codes have variance 1, and P starts wide as in sineSPE, near
    3/4 (1 - |x| / kernel_size). With random signs it would start near zero.

    Args:
        kernel_size: taps of the filters.

    Raises:
        ValueError: for numbers below 1.
    """

    BLOCK = 64  # time steps per draw
    CHUNK = 32  # codes per product; the fastest of 32, 64 and 128 on a CPU

    def __init__(
        self,
        context: EncodingContext,
        *,
        num_realizations: int = 64,
        kernel_size: int = 200,
        gated: bool = True,
    ) -> None:
        super().__init__(context, num_realizations, gated)
        check_at_least(1, "kernel_size", kernel_size)
        self.kernel_size = kernel_size
        self.query_filter, self.key_filter = self._filter(), self._filter()

    def _filter(self) -> nn.Parameter:
        heads, dim = self.context.num_heads, self.context.head_dim
        draws = torch.rand(heads, dim, self.kernel_size, generator=self.context.generator)
        return nn.Parameter(math.sqrt(3) * draws)

    def kernel(self, offset: int) -> Tensor:
        size = self.kernel_size
        # Tap j of the query's filter meets tap j - offset of the key's.
        low, high = max(0, offset), min(size, size + offset)
        if low >= high:
            return torch.zeros_like(self.query_filter[..., 0], dtype=torch.float64)
        query, key = self.query_filter.double(), self.key_filter.double()
        return (query[..., low:high] * key[..., low - offset : high - offset]).sum(-1) / size

    def codes(self, positions: Tensor, *, of_queries: bool, like: Tensor) -> Tensor:
        taps = (self.query_filter if of_queries else self.key_filter).to(like.dtype)
        if not len(positions):
            return taps.new_zeros(taps.size(0), 0, taps.size(1), self.num_realizations)
        taps = taps * self.kernel_size**-0.5
        matrix = _shifted(taps, min(self.CHUNK, len(positions)))
        pieces, used = [], {"gate"}
        for start, length in runs(positions.tolist()):
            noise, names = self._time_steps(start, length + self.kernel_size - 1, like)
            used |= names
            for first in range(0, length, self.CHUNK):
                rows = min(self.CHUNK, length - first)
                steps = rows + self.kernel_size - 1
                pieces.append(matrix[:, :, :rows, :steps] @ noise.narrow(2, first, steps))
        self._draw.keep_only(used)
        return torch.cat(pieces, dim=2).transpose(1, 2)

    @uncompiled("the drawn blocks of noise depend on the positions")
    def _apply_codes(self, x: Tensor, positions: Tensor, of_queries: bool) -> Tensor:
        return super()._apply_codes(x, positions, of_queries)

    def _time_steps(self, start: int, count: int, like: Tensor) -> tuple[Tensor, set[str]]:
        """Return the noise z of ``count`` time steps (H, D, count, R), and its blocks' names."""
        first, last = start // self.BLOCK, (start + count - 1) // self.BLOCK
        names = [f"block {i}" for i in range(first, last + 1)]
        noise = torch.cat([self._noise(name, self.BLOCK, like) for name in names], dim=2)
        return noise.narrow(2, start - first * self.BLOCK, count), set(names)


def _shifted(taps: Tensor, rows: int) -> Tensor:
    """Shift the filter by one more step in each row: (H, D, L) -> (H, D, rows, rows + L - 1)."""
    padded = F.pad(taps, (rows - 1, rows - 1))
    return padded.unfold(-1, rows + taps.size(-1) - 1, 1).flip(-2)
