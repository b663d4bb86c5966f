"""What the tests of attention share: names, compatibility as the hooks imply it, and a layer.

Shapes: B batch, H heads, T queries, S keys, D head_dim, C embed_dim.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.attention import base, build_attention
from fairseq_plugins.attention.base import State
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import ENCODINGS, PositionEncoding, Stochastic, build_encoding
from fairseq_plugins.encodings.base import LOGIT_HOOKS
from fairseq_plugins.encodings.position_bounds import with_end
from tests.quick import with_choices

HEADS, DIM, VOCAB = 2, 8, 50
WIDTH = HEADS * DIM
ATTENTIONS = ("vanilla", "linear")
# Every name of the table, and compositions that mix the kinds of hooks.
NAMES = [
    *sorted(ENCODINGS),
    "base+rope",
    "learned+lrpe_type3",
    "rope+shaw",
    "t5+lrpe_type8",
    "alibi+shaw+lrpe_type4",
]


def hooks_of(name: str) -> frozenset[str]:
    return frozenset[str]().union(*(ENCODINGS[part].hooks for part in name.split("+")))


def compatible(attention: str, name: str, causal: bool) -> bool:
    """Linear attention has no T x S logits; softmax attention has everything."""
    has_hooks = attention == "vanilla" or not hooks_of(name) & LOGIT_HOOKS
    return has_hooks and refusal(name, causal) is None


def refusal(name: str, causal: bool) -> str | None:
    """Why a direction cannot have an encoding."""
    reasons = (ENCODINGS[part].refusal(causal=causal) for part in name.split("+"))
    return next((reason for reason in reasons if reason), None)


def overflows(name: str, attention: str, dtype: torch.dtype) -> bool:
    """Whether sums of weights can be 0, over which float16 ends."""
    cancels = {"lrpe_type8", "lrpe_dct"} & {*name.split("+")}
    return attention == "linear" and dtype == torch.float16 and bool(cancels)


def extrapolates(name: str) -> bool:
    """Whether every encoding of a name has positions beyond those it was built for."""
    return all(ENCODINGS[part].facts.extrapolates for part in name.split("+"))


def redraw(encoding: PositionEncoding, seed: int) -> None:
    """Anew what an encoding draws, if it does."""
    for part in encoding.parts:
        if isinstance(part, Stochastic):
            part.redraw(seed)


PAIRS = [(name, attention) for name in NAMES for attention in ATTENTIONS]
CAUSAL, BIDIRECTIONAL = (
    [(name, attention) for name, attention in PAIRS if compatible(attention, name, causal)]
    for causal in (True, False)
)
DIRECTED = [(*pair, True) for pair in CAUSAL] + [(*pair, False) for pair in BIDIRECTIONAL]


def mechanism(case: tuple[Any, ...]) -> tuple[Any, ...]:
    """The hooks of a case's encoding, and its attention and direction."""
    return (hooks_of(case[0]), *case[1:])


def more_for_each_mechanism(
    cases: Iterable[tuple[Any, ...]], choices: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Every case with the first choice, and one of each mechanism with the others too."""
    return [(*case, choice) for case, choice in with_choices(cases, choices, mechanism)]


def one_of_each_mechanism(cases: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The first case with each set of hooks, attention and direction."""
    return list({mechanism(case): case for case in reversed([*cases])}.values())


FAR = 10_000
# Those that can be far out; an ODE's steps up to there take seconds.
FAR_OUT = [case for case in DIRECTED if extrapolates(case[0]) and case[0] != "floater"]
SLOW_FAR_OUT = [case for case in DIRECTED if case[0] == "floater"]


class Layer(nn.Module):
    """Token embeddings (B, T, C) -> embed -> projections -> attention -> (B, T, C).

    With ``memory`` (B, S, C) the keys and values come from there. Decoding works on what
    ``embed`` returned. ``options`` are the attention's.
    """

    def __init__(
        self,
        name: str,
        attention: str,
        *,
        causal: bool,
        dtype: torch.dtype = torch.float64,
        encoding_options: Mapping[str, object] | None = None,
        **options,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.encoding = build_encoding(
            name,
            num_heads=HEADS,
            head_dim=DIM,
            embed_dim=WIDTH,
            max_positions=128,
            causal=causal,
            vocab_size=VOCAB,
            generator=generator,
            **(encoding_options or {}),
        )
        self.attention = build_attention(
            attention, self.encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
        )
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.encoding.bind_projections(self.q_proj, self.k_proj)
        self.to(dtype)

    def embed(self, x: Tensor, at: Tensor, padding: Tensor | None = None) -> Tensor:
        """With the true lengths, and words that follow from the first feature.

        What an encoding draws is drawn before, as in a model.
        """
        redraw(self.encoding, int(base.draw_seed()))
        lengths = torch.full((x.size(0),), x.size(1), device=x.device)
        if padding is not None:
            lengths = (~padding).sum(1)
        words = (x[..., 0].detach().double() * 1000).long() % VOCAB
        return self.encoding.embed(x, at, lengths=lengths, tokens=words)

    def heads(self, x: Tensor, projections: list[nn.Linear]) -> list[Tensor]:
        """Projected, each (B, H, T, D)."""
        return [p(x).unflatten(-1, (HEADS, DIM)).transpose(1, 2) for p in projections]

    def forward(
        self,
        x: Tensor,
        at: Tensor,
        *,
        memory: Tensor | None = None,
        memory_at: Tensor | None = None,
        padding: Tensor | None = None,
        **more,
    ) -> Tensor:
        if memory is None:
            x = memory = self.embed(x, at, padding)
            memory_at = at
        else:
            x, memory = self.embed(x, at), self.embed(memory, memory_at, padding)
        (q,) = self.heads(x, [self.q_proj])
        k, v = self.heads(memory, [self.k_proj, self.v_proj])
        output, _ = self.attention(
            q, k, v, q_positions=at, k_positions=memory_at, key_padding_mask=padding, **more
        )
        return output.transpose(1, 2).flatten(2)

    def step(
        self, x: Tensor, at: Tensor, state: State | None, padding: Tensor | None = None
    ) -> tuple[Tensor, State]:
        q, k, v = self.heads(x, [self.q_proj, self.k_proj, self.v_proj])
        output, state = self.attention.step(
            q, k, v, positions=at, key_padding_mask=padding, state=state
        )
        return output.transpose(1, 2).flatten(2), state

    def remember(self, x: Tensor, at: Tensor, padding: Tensor | None = None) -> State:
        k, v = self.heads(x, [self.k_proj, self.v_proj])
        return self.attention.remember(k, v, k_positions=at, key_padding_mask=padding)

    def attend(self, x: Tensor, at: Tensor, state: State) -> Tensor:
        (q,) = self.heads(x, [self.q_proj])
        output, _ = self.attention.attend(q, state, q_positions=at)
        return output.transpose(1, 2).flatten(2)


def tokens(batch: int, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, length, WIDTH).to(dtype)


def count(length: int, start: int = 0) -> Tensor:
    """Positions (1, T) from ``start`` on."""
    return torch.arange(start, start + length).unsqueeze(0)


def steps_of(whole: Positions, sizes: Sequence[int]) -> list[Positions]:
    """What the steps of a decoding are given that takes so many tokens at once."""
    steps, start = [], 0
    for size in sizes:
        now, start = slice(start, start + size), start + size
        padding = None if whole.padding_mask is None else whole.padding_mask[:, now]
        index = with_end(whole.index[:, now], start)
        steps.append(Positions(index, padding, SharedPass()))
    return steps


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest expected value (at least 1)."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0))
