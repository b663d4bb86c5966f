"""Properties of every encoding for the catalogue, found by building it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.attention.flex import gives_pairs
from fairseq_plugins.encodings import (
    EncodingContext,
    IncompatibleEncodingError,
    LinearFacts,
    PositionEncoding,
    PositionFacts,
    Stochastic,
    build_encoding,
    build_model_encodings,
    with_absolute_embedding,
)
from fairseq_plugins.encodings.base import LOGIT_HOOKS, TRANSFORM_HOOKS

Fit = Literal["yes", "no", "-"]

# Every direction, and whether its attention is built causal.
DIRECTIONS = {"causal": True, "bidirectional": False, "cross": False}
# The attentions as the papers call them.
LABELS = {"vanilla": "softmax"}
# Every hook with a short word for it, in the order of their use.
HOOK_WORDS = {
    "embed": "embed",
    "transform_query": "q",
    "transform_key": "k",
    "transform_value": "v",
    "transform_output": "output",
    "log_decay": "decay",
    "attn_bias": "bias",
    "relative_logits": "logits",
    "relative_values": "values",
}

# Kernels of softmax attention and the hooks that need them: the first match, else "fused".
SOFTMAX_KERNELS = {
    "weights": {"relative_values"},
    "logits": {"relative_logits", "log_decay"},
    "bias": {"attn_bias"},
}

# The size at which parameters are counted: that of the LRPE paper's language models.
LAYERS, HEADS, HEAD_DIM, WIDTH, LONGEST, WORDS = 6, 8, 64, 512, 512, 10_000
SIZE = (
    f"{LAYERS} layers, width {WIDTH}, {HEADS} heads, {LONGEST} positions and a vocabulary of "
    f"{WORDS:,}"
)


@dataclass(frozen=True)
class Facts:
    """Properties of an encoding, as the catalogue shows them."""

    name: str  # of the registry, or several joined by ``+``
    hooks: tuple[str, ...]  # those that it overrides, in the order of their use
    # By attention and direction; `-` for cross-attention if no hook acts inside an attention.
    fits: dict[tuple[str, str], Fit]
    refusals: dict[str, list[tuple[str, str]]]  # attentions and directions by reason
    parameters: int  # learned ones at ``SIZE``, shared ones counted once
    parameters_per_layer: int  # those that each layer has for itself
    position_facts: PositionFacts
    is_stochastic: bool
    feature_map: str | None  # that of linear attention if the definition prescribes one
    replaces_absolute: bool  # whether it replaces the framework's absolute embedding
    gives_pairs: bool  # whether a GPU kernel can compute its bias pair by pair

    @property
    def softmax_kernel(self) -> str:
        """Return the kernel of softmax attention.

        A key of ``SOFTMAX_KERNELS``, ``pairs`` or ``fused``; ``-`` if softmax attention does not
        support the encoding.
        """
        if self.under("vanilla") == "no":
            return "-"
        if self.gives_pairs:
            return "pairs"
        kernels = (kernel for kernel, hooks in SOFTMAX_KERNELS.items() if hooks & {*self.hooks})
        return next(kernels, "fused")

    def under(self, attention: str) -> Fit:
        """Return whether an attention supports the encoding in any direction."""
        return "yes" if "yes" in [self.fits[attention, d] for d in DIRECTIONS] else "no"

    def when(self, direction: str) -> str:
        """Return ``yes``, ``no`` or ``-`` for a direction, or the attentions that support it."""
        fits = {a: self.fits[a, direction] for a in ATTENTIONS if self.under(a) == "yes"}
        if len(set(fits.values())) == 1:
            return next(iter(fits.values()))
        return " ".join(LABELS.get(a, a) for a, fit in fits.items() if fit == "yes") or "no"


def gather(name: str) -> Facts:
    """Collect the properties of an encoding by building it in every direction.

    Raises:
        ValueError: an unknown name, or names that do not compose.
    """
    encoding = build_encoding(name, **_shape(causal=_is_causal(name)))
    fits, refusals = _support(name, encoding)
    total = count_parameters(name, LAYERS)
    return Facts(
        name=name,
        hooks=tuple(hook for hook in HOOK_WORDS if hook in encoding.hooks),
        fits=fits,
        refusals=refusals,
        parameters=total,
        parameters_per_layer=total - count_parameters(name, LAYERS - 1),
        position_facts=PositionFacts.of(encoding),
        is_stochastic=any(isinstance(part, Stochastic) for part in encoding.parts),
        feature_map=LinearFacts.of(encoding).feature_map,
        replaces_absolute=with_absolute_embedding(name, "base") == name,
        gives_pairs=gives_pairs(encoding),
    )


def count_parameters(name: str, layers: int) -> int:
    """Count the learned parameters of a stack, shared ones once."""
    context = EncodingContext(**_shape(causal=_is_causal(name), vocab_size=WORDS))
    built = build_model_encodings(name, layers, context, {})
    parts = nn.ModuleList([e for e in (*built.inputs, *built.layers) if e is not None])
    return sum(p.numel() for p in parts.parameters() if p.requires_grad)


def _shape(*, causal: bool, vocab_size: int = 1) -> dict:
    """Return the arguments of a context, with a generator to keep torch's global one unchanged."""
    return {
        "num_heads": HEADS,
        "head_dim": HEAD_DIM,
        "embed_dim": WIDTH,
        "max_positions": LONGEST,
        "causal": causal,
        "vocab_size": vocab_size,
        "generator": torch.Generator().manual_seed(1),
    }


def _is_causal(name: str) -> bool:
    """Return whether causal models support an encoding."""
    try:
        return build_encoding(name, **_shape(causal=True)).causal_refusal is None
    except IncompatibleEncodingError:
        return False


def _support(
    name: str, encoding: PositionEncoding
) -> tuple[dict[tuple[str, str], Fit], dict[str, list[tuple[str, str]]]]:
    """Try each attention in each direction; return support and the reasons of errors."""
    acts_inside = bool(encoding.hooks & (TRANSFORM_HOOKS | LOGIT_HOOKS))
    fits: dict[tuple[str, str], Fit] = {}
    refusals: dict[str, list[tuple[str, str]]] = {}
    for attention in ATTENTIONS:
        for direction, causal in DIRECTIONS.items():
            case = attention, direction
            if direction == "cross" and not acts_inside:
                fits[case] = "-"
                continue
            reason = _refusal(attention, name, causal)
            fits[case] = "no" if reason else "yes"
            if reason:
                refusals.setdefault(reason, []).append(case)
    return fits, refusals


def _refusal(attention: str, name: str, causal: bool) -> str | None:
    """Return why an attention does not support an encoding; None if it does."""
    try:
        encoding = build_encoding(name, **_shape(causal=causal))
        # Not by build_attention, which adds alternatives to the reason.
        ATTENTIONS[attention](encoding, num_heads=HEADS, head_dim=HEAD_DIM, causal=causal)
    except IncompatibleEncodingError as error:
        return str(error)
    return None


def describe(facts: Facts) -> list[tuple[str, str]]:
    """Return the properties as lines of a label and a text."""
    lines = [("hooks", ", ".join(facts.hooks) or "none")]
    for attention in ATTENTIONS:
        supported = [d for d in DIRECTIONS if facts.fits[attention, d] == "yes"]
        only_input = facts.fits[attention, "cross"] == "-"
        text = ", ".join(supported) or "no"
        if supported and only_input:
            text += "; in cross-attention it has no effect of its own"
        lines.append((f"{LABELS.get(attention, attention)} attention", text))
    for reason, cases in facts.refusals.items():
        lines.append(("unsupported", f"{_cases(cases)}: {reason}"))
    lines.append(("learned parameters", _parameters(facts)))
    if facts.position_facts.needs_lengths:
        lines.append(("lengths", "needs the lengths of the sequences without padding"))
    if not facts.position_facts.extrapolates:
        lines.append(("longer", "positions beyond the training length raise an error"))
    if facts.is_stochastic:
        lines.append(("random values", "drawn in every pass, once for a whole decoding"))
    if facts.feature_map:
        lines.append(("feature map", f"{facts.feature_map}, in place of linear attention's own"))
    absolute = "none" if facts.replaces_absolute else "`base`, unless it is turned off"
    lines.append(("absolute embedding beside it", absolute))
    return lines


def _cases(cases: list[tuple[str, str]]) -> str:
    """Format attentions and directions, as in ``softmax (causal), linear (causal, cross)``."""
    by_attention: dict[str, list[str]] = {}
    for attention, direction in cases:
        by_attention.setdefault(LABELS.get(attention, attention), []).append(direction)
    return ", ".join(f"{a} ({', '.join(directions)})" for a, directions in by_attention.items())


def _parameters(facts: Facts) -> str:
    if not facts.parameters:
        return "none"
    each = facts.parameters_per_layer
    shared = facts.parameters - LAYERS * each
    text = f"{each:,} in each layer" if each else "once for the model"
    if each and shared:
        text += f" and {shared:,} once for the model"
    return f"{facts.parameters:,}, {text} ({SIZE})"
