"""Stochastic positional encoding: random codes whose expected product is a learned kernel.

Shapes: B batch, H heads, T tokens, D head_dim, R realisations, U positions that occur.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_plugins.encodings.base import (
    EncodingContext,
    PositionEncoding,
    check_features,
    widened,
)
from fairseq_plugins.encodings.checks import check_at_least
from fairseq_plugins.encodings.noise import Draw, group_by_position
from fairseq_plugins.encodings.position_bounds import is_recorded
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.wave_products import wave_products
from fairseq_plugins.kernels.backend import apply_function
from fairseq_plugins.kernels.derivatives import first_derivative

PAPER = "SPE (Liutkus et al. 2021)"


class StochasticEncoding(PositionEncoding):
    """Base class: features of queries are sum_d q_d qbar_hdr(s), of keys sum_d k_d kbar_hdr(t).

    The codes qbar and kbar are Gaussian, independent for every head, feature d and realisation
    r, with E[qbar(s) kbar(t)] = P_hd(s - t). The logit q~.k~ / sqrt(R) is therefore
    sum_d P_hd(s - t) q_d k_d / sqrt(D) on average over the draws. Both codes are divided by
    (R D)^(1/4), which gives the paper's factor 1 / sqrt(D).

    A gated encoding adds noise eps_hdr, the same for queries, keys and all positions, to the
    codes: qbar <- sqrt(g) qbar + sqrt(1 - g) eps, g_hd = sigmoid(gate), and likewise kbar. The
    kernel becomes g P + 1 - g, which can ignore positions.

    The draw is a function of the seed given to ``redraw``, which an attention calls before every
    pass, in evaluation too; it is the same on every device and for every row of the batch. The
    seeds come from PyTorch's global generator. fairseq-train seeds that for every update and
    fairseq-generate at its start; fairseq-eval-lm never does, so ``pe_transformer_lm`` seeds it by
    ``--seed`` when it is prepared for inference.

    Scores are relative only on average. Linear attention applies its feature map to the result.

    Args:
        num_realizations: R, the features of encoded queries and keys.
        gated: whether the codes have a gate.

    Raises:
        ValueError: for a number of realisations below 1.
    """

    transform_after_feature_map = False
    is_relative = False
    keeps_positive = True  # the feature map comes last, so that no weight is negative

    def __init__(self, context: EncodingContext, num_realizations: int, gated: bool) -> None:
        super().__init__(context)
        check_at_least(1, "num_realizations", num_realizations)
        self.num_realizations = num_realizations
        self.gate = nn.Parameter(self._normal()) if gated else None
        self._draw = Draw()

    def _normal(self, *shape: int) -> Tensor:
        """Draw initial values (H, D, ...) from N(0, 1)."""
        heads, dim = self.context.num_heads, self.context.head_dim
        return torch.randn(heads, dim, *shape, generator=self.context.generator)

    def _noise(self, name: str, rows: int, like: Tensor) -> Tensor:
        """Return noise from N(0, 1), (H, D, rows, R)."""
        shape = (self.context.num_heads, self.context.head_dim, rows, self.num_realizations)
        return self._draw(name, shape, like)

    @property
    def encoded_dim(self) -> int:
        """R."""
        return self.num_realizations

    def logit_scale(self) -> float:
        """Return 1/sqrt(R); 1/sqrt(D) is in the codes."""
        return float(self.num_realizations**-0.5)

    def redraw(self, seed: int | Tensor) -> None:
        # A compiled graph cannot compare seeds, which are tensors there.
        before = self._draw.seed
        if isinstance(seed, Tensor) or isinstance(before, Tensor) or seed != before:
            self._draw = Draw(seed)

    def kernel(self, offset: int) -> Tensor:
        """Return P_hd(s - t) at t - s = ``offset``, (H, D) float64, before the gate."""
        raise NotImplementedError

    def expected_scores(self, offset: int) -> Tensor:
        """Return diagonal matrices (H, D, D) float64: the gated P times R / sqrt(R D)."""
        kernel = self.kernel(offset)
        if self.gate is not None:
            share = torch.sigmoid(self.gate.double())
            kernel = share * kernel + 1 - share
        return torch.diag_embed(kernel) * (self.num_realizations / self.context.head_dim) ** 0.5

    def codes(self, positions: Tensor, *, of_queries: bool, like: Tensor) -> Tensor:
        """Return qbar or kbar, not gated or divided: ascending (U,) -> (H, U, D, R)."""
        raise NotImplementedError

    def transform_query(self, q: Tensor, positions: Tensor) -> Tensor:
        """Encode queries: (B, H, T, D) -> (B, H, T, R)."""
        return self._encode(q, positions, of_queries=True)

    def transform_key(self, k: Tensor, positions: Tensor) -> Tensor:
        """Encode keys: (B, H, S, D) -> (B, H, S, R)."""
        return self._encode(k, positions, of_queries=False)

    def _encode(self, x: Tensor, positions: Tensor, *, of_queries: bool) -> Tensor:
        check_features(self, x)
        wide = widened(x)
        share = (self.num_realizations * self.context.head_dim) ** -0.25
        if self.gate is None:
            return self._apply_codes(share * wide, positions, of_queries).to(x.dtype)
        # The gate acts on x rather than on the codes, so that eps needs no (H, U, D, R). Its roots
        # are computed by logarithms, since the gradient of a root is infinite at 0.
        gate = self.gate.to(wide.dtype).unsqueeze(1)
        moving, still = (share * torch.exp(F.logsigmoid(g) / 2) for g in (gate, -gate))
        result = self._apply_codes(wide * moving, positions, of_queries)
        constant = (wide * still) @ self._noise("gate", 1, wide).squeeze(2)
        return (result + constant).to(x.dtype)

    def _apply_codes(self, x: Tensor, positions: Tensor, of_queries: bool) -> Tensor:
        """Return sum_d x_d code_dr at each position: (B, H, T, D) -> (B, H, T, R).

        The codes are computed once per distinct position, and one matrix product per position
        applies them to the tokens of all rows, without a tensor (B, H, T, D, R).
        """
        batch, heads, length, dim = x.shape
        unique, of_group, slot = group_by_position(positions.expand(batch, -1), batch)
        codes = self.codes(unique, of_queries=of_queries, like=x)
        if len(of_group) > len(unique):
            codes = codes[:, of_group]
        tokens = x.transpose(0, 1).flatten(1, 2)
        grouped = x.new_zeros(heads, len(of_group) * batch, dim)
        grouped = grouped.index_copy(1, slot.flatten(), tokens)
        result = (grouped.unflatten(1, (len(of_group), batch)) @ codes).flatten(1, 2)
        return result[:, slot.flatten()].unflatten(1, (batch, length)).transpose(0, 1)


@register_encoding(
    "spe",
    known_as=("stochastic", "sinespe"),
    summary="random sums of sines whose expected product is a learned kernel per feature",
    source=f"{PAPER}, sineSPE; row SPE of LRPE, Table 2",
    formula="E[logit] = sum_d P_d(s - t) q_d k_d / sqrt(D), "
    "P_d(x) = sum_k g_dk^2 cos(2 pi f_dk x + a_dk)",
)
class SineSPE(StochasticEncoding):
    """SPE with P_hd(x) = sum_k gain_k^2 cos(2 pi f_k x + phase_k), K sinusoids per head and d.

    qbar(s) = sum_k gain_k (cos(2 pi f_k s + phase_k) z_k + sin(2 pi f_k s + phase_k) z'_k), z
    and z' from N(0, 1); kbar(t) the same with the same z, without the phase, which makes P
    asymmetric.

    Frequencies are sigmoid(f) / 2, at most half a turn per position; f starts at N(0, 1) - 4,
    about a hundred positions per turn. Gains are softplus(g) / sqrt(2K); g starts at N(0, 1)
    divided by sqrt(|g|) / 2, |g| the norm over k. The factor 1 / sqrt(2K) keeps the variance
    sum_k gain_k^2 of the codes near 1 for any K: initially 0.6 on average for K = 5, and between
    0.4 and 1 for K up to 20. There are no second derivatives.

    Args:
        num_sines: K.

    Raises:
        ValueError: for numbers below 1.
    """

    MANY_ROWS = 6  # measured on a CPU at H = 8, T = 512, D = R = 64, K = 5

    def __init__(
        self,
        context: EncodingContext,
        *,
        num_realizations: int = 64,
        num_sines: int = 5,
        gated: bool = True,
    ) -> None:
        super().__init__(context, num_realizations, gated)
        check_at_least(1, "num_sines", num_sines)
        self.frequencies = nn.Parameter(self._normal(num_sines) - 4)
        self.phases = nn.Parameter(self._normal(num_sines))
        gains = self._normal(num_sines)
        self.gains = nn.Parameter(gains / (gains.norm(dim=-1, keepdim=True).sqrt() / 2))

    def kernel(self, offset: int) -> Tensor:
        gains = F.softplus(self.gains.double()).square() / (2 * self.gains.size(-1))
        turns = -offset * torch.sigmoid(self.frequencies.double()) / 2
        return (gains * torch.cos(2 * math.pi * turns + self.phases.double())).sum(-1)

    def codes(self, positions: Tensor, *, of_queries: bool, like: Tensor) -> Tensor:
        waves = self._waves(positions, of_queries, like)
        return (waves.permute(0, 3, 1, 2) @ self._mixing(like)).transpose(1, 2)

    def _apply_codes(self, x: Tensor, positions: Tensor, of_queries: bool) -> Tensor:
        # Computing codes costs the same for any batch, so it pays off for many rows. For few rows
        # the factors of the codes are applied one after the other: (x_d wave_dk) (2KD,) times
        # (2KD, R). In a compiled graph the number of distinct positions is unknown.
        recorded = is_recorded(positions)
        if positions.size(0) == 1 and (recorded or x.size(0) >= self.MANY_ROWS):
            codes = self.codes(positions[0], of_queries=of_queries, like=x)
            return (x.permute(1, 2, 0, 3) @ codes).permute(2, 0, 1, 3)
        if not recorded and x.size(0) >= self.MANY_ROWS:
            return super()._apply_codes(x, positions, of_queries)
        waves = self._waves(positions.flatten(), of_queries, x)
        waves = waves.unflatten(1, positions.shape).transpose(0, 1)
        return wave_products(x, waves, self._mixing(x).transpose(1, 2).flatten(1, 2))

    def _waves(self, positions: Tensor, of_queries: bool, like: Tensor) -> Tensor:
        """Return [cos; sin] at positions (U,): (H, U, 2K, D), with D last as in x."""
        per_step = torch.sigmoid(self.frequencies.mT.double()) / 2
        phases = self.phases.mT.to(like.dtype) if of_queries else None
        waves: Tensor = apply_function(_Waves, per_step, phases, positions, like.dtype)
        return waves

    def _mixing(self, like: Tensor) -> Tensor:
        """Return gains times noise: (H, D, 2K, R)."""
        gains = F.softplus(self.gains.to(like.dtype))
        gains = torch.cat((gains, gains), -1) * (2 * gains.size(-1)) ** -0.5
        return gains.unsqueeze(-1) * self._noise("waves", gains.size(-1), like)


class _Waves(torch.autograd.Function):
    """[cos; sin] of 2 pi s f + phase, (H, U, 2K, D), with an explicit gradient.

    Autograd would save every step from position to angle in float64, and compute sines again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        per_step: Tensor, phases: Tensor | None, positions: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Compute the waves, (H, U, 2K, D).

        Args:
            per_step: f (H, K, D), turns from one position to the next, float64.
            phases: (H, K, D).
            positions: (U,).
            dtype: of the result and the phases.
        """
        # Whole turns are dropped in float64: float32 loses three digits at position 10,000.
        turns = positions.double().view(-1, 1, 1) * per_step.contiguous().unsqueeze(1)
        angles = turns.frac_().to(dtype).mul_(2 * math.pi)
        if phases is not None:
            angles = angles.add_(phases.contiguous().unsqueeze(1))
        return torch.cat((angles.cos(), angles.sin_()), dim=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, phases, positions, _ = inputs
        ctx.save_for_backward(output, positions)
        ctx.has_phases = phases is not None

    @staticmethod
    @first_derivative
    def backward(
        ctx: Any, saved: tuple[Tensor, ...], grad: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None]:
        waves, positions = saved
        cos, sin = waves.chunk(2, dim=2)
        to_cos, to_sin = grad.chunk(2, dim=2)
        to_angles = (to_sin * cos).addcmul_(to_cos, sin, value=-1)
        to_phases = to_angles.sum(1) if ctx.has_phases else None
        weighted = to_angles.mul_(positions.to(to_angles.dtype).view(-1, 1, 1))
        return 2 * math.pi * weighted.sum(1).double(), to_phases, None, None
