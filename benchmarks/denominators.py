"""Largest outputs of causal linear attention on random tokens, by denominator and length."""

import itertools
from collections.abc import Iterator

import torch

from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.runner import Case
from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.encodings import build_encoding


@torch.no_grad()
def denominators(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Record the largest output over the largest value, with its spread over seeds.

    Weights that are positive and sum to 1 keep it at or below 1.
    """
    heads, kinds = settings["heads"], ("head_dims", "encodings", "normalizers", "lengths")
    for dim, name, normalizer, length in itertools.product(*(settings[kind] for kind in kinds)):
        sizes = {"num_heads": heads, "head_dim": dim, "causal": True}
        encoding = build_encoding(name, **sizes)
        attention = build_attention("linear", encoding, normalizer=normalizer, **sizes)
        at = make_positions(None, length)
        outputs, values = [], []
        for seed in settings["seeds"]:
            generator = torch.Generator().manual_seed(seed)
            q, k, v = torch.randn(3, 1, heads, length, dim, generator=generator)
            output, _ = attention(q, k, v, q_positions=at, k_positions=at)
            outputs.append(output.abs().max().item())
            values.append(v.abs().max().item())
        key = f"{name} {normalizer}, heads of {dim}@{length}"
        found.add_ratio(key, outputs, values)
        context.say(f"  {key}: {found.ratios[key]:.3g}")
    yield Case()
