"""Encodings that compute each position's vector from the one before: a GRU."""

import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.absolute import Absolute
from fairseq_plugins.encodings.base import EncodingContext, widened
from fairseq_plugins.encodings.position_bounds import end_of
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.uncompiled import uncompiled


class Trajectory(Absolute):
    """Base class: p_0, p_1, ... computed one after the other up to the largest position.

    Nothing is cached between calls, since parameters may change: a decoding step at position s
    costs s steps of the recursion.
    """

    def trajectory(self, count: int) -> Tensor:
        """Return p_0 to p_{count-1}: (count, C)."""
        raise NotImplementedError

    @uncompiled("the number of steps depends on the positions")
    def rows(self, positions: Tensor) -> Tensor:
        """Return the vectors p_s: (B or 1, T) -> (B or 1, T, C)."""
        count = end_of(self.label, positions, self.context.max_positions)
        # Half precision would round away the small steps of slow features.
        with torch.autocast(positions.device.type, enabled=False):
            return self.trajectory(max(count, 1))[positions]


@register_encoding(
    "recursive",
    known_as=("gru", "rnn"),
    summary="the states of a GRU that counts, added to the tokens",
    source="Su's survey, Recursive",
    formula="x_s + p_s, p_(s+1) = GRU(p_s), p_0 learned",
)
class Recursive(Trajectory):
    """p_{s+1} = GRU(1, p_s) from a learned p_0.

    The GRU has no bias, and its input is always 1, so that its input weights are the biases.
    p_0 is uniform in the range of a GRU's states, (-1, 1). The biases of the gate that keeps the
    old state are the logarithms of U(1, max_positions - 1) (chrono initialisation, Tallec and
    Ollivier 2018), so that features forget over times from one position to the whole length. With
    PyTorch's initial values the states reach a fixed point after about 20 positions, and later
    positions would be indistinguishable.
    """

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        dim, generator = context.embed_dim, context.generator
        self.start = nn.Parameter(2 * torch.rand(dim, generator=generator) - 1)
        # Built without values, which would be drawn from torch's global generator.
        self.gru = nn.GRU(1, dim, bias=False, device="meta").to_empty(device=self.start.device)
        for weight in self.gru.parameters():
            nn.init.uniform_(weight, -(dim**-0.5), dim**-0.5, generator=generator)
        times = 1 + torch.rand(dim, 1, generator=generator) * max(0, context.max_positions - 2)
        with torch.no_grad():
            # PyTorch's order of the gates: reset, keep, new.
            self.gru.get_parameter("weight_ih_l0")[dim : 2 * dim] = times.log()

    def trajectory(self, count: int) -> Tensor:
        start = widened(self.start).unsqueeze(0)
        # By name, since torch.func puts plain tensors in the place of parameters.
        weights = [widened(getattr(self.gru, f"weight_{side}_l0")) for side in ("ih", "hh")]
        # One step more than needed, since a GRU needs at least one.
        ones = start.new_ones(count, 1, 1)
        # cuDNN's GRU uses TF32 and has no gradient in evaluation mode.
        with torch.backends.cudnn.flags(enabled=False):
            states, _ = torch.gru(
                ones,
                start.unsqueeze(0),
                weights,
                has_biases=False,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=False,
            )
        return torch.cat((start, states[:-1, 0]))
