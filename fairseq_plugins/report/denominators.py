"""Notes on linear attention's denominators: clamps and their effect on rows."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fairseq_plugins.attention import LinearAttention, floored_share
from fairseq_plugins.encodings import build_encoding, parse_options
from fairseq_plugins.encodings.properties import ENCODED
from fairseq_plugins.experiments.base import Experiment, Stack
from fairseq_plugins.modules.options import (
    NORMALIZER_OPTIONS,
    PositionEncodingConfig,
    build_model_attention,
)
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.results import Result

LINEAR_OPTIONS = ("feature_map", "linear_normalizer", *NORMALIZER_OPTIONS)  # of a model
MOST = 0.5  # share of queries from which on the clamp affects most of a row


def denominators(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """Describe the denominators of rows under linear attention, in sentences."""
    found: dict[str, LinearAttention] = {}
    for result in results:
        if result["attention"] != "linear":
            continue
        *_, config = trainings_of(result["config"]).values()
        known = ((name, config["model"].get(name)) for name in LINEAR_OPTIONS)
        # Whatever else a damaged result may have here, the page is made.
        options = tuple(
            (name, value) for name, value in known if isinstance(value, str | float | int)
        )
        for stack in experiment.stacks(config["model"]):
            if stack.attention_type == "linear":
                found[result["row"]] = _attention(stack, options)
    return [sentence for sentence in (_clamped(found), _authors(found)) if sentence]


def _clamped(found: Mapping[str, LinearAttention]) -> str:
    """Describe encoded denominators with a clamp, and plain ones."""
    encoded = {
        row: one
        for row, one in found.items()
        if one.hooks & ENCODED and one.normalizer in ("encoded", "plain")
    }
    kept = {row: floored_share(one) for row, one in encoded.items() if one.min_cosine}
    parts = []
    if kept:
        shares = " / ".join(f"{s:g}" for s in sorted({encoded[row].min_cosine for row in kept}))
        parts.append(
            "The paper does not say what linear attention does where an encoded denominator comes "
            f"near zero; here its absolute value is at least {shares} of its maximum."
        )
        parts.append(_affected(kept))
    plain = [row for row, one in encoded.items() if one.normalizer == "plain"]
    free = [row for row in encoded if row not in kept and row not in plain]
    if free:
        parts.append(f"Scores that are never negative need no lower bound: {_names(free)}.")
    if plain:
        parts.append(f"The denominator is that of un-encoded features in {_names(plain)}.")
    return " ".join(parts)


def _authors(found: Mapping[str, LinearAttention]) -> str:
    """Describe rows with the denominators (or norms) of the authors' released code."""
    parts = []
    for epsilon in sorted({one.epsilon for one in found.values() if one.epsilon is not None}):
        shares = {row: floored_share(one) for row, one in found.items() if one.epsilon == epsilon}
        parts.append(
            f"Linear attention divides by max(denominator, {epsilon:g}), as in the LRPE authors' "
            f"code of 2022. {_affected(shares)}"
        )
    normed = [row for row, one in found.items() if one.output_norm is not None]
    if normed:
        parts.append(
            "A norm of the output replaces the denominator, as in the LRPE authors' "
            f"code since January 2023, in {_names(normed)}."
        )
    return " ".join(parts)


def _affected(shares: Mapping[str, float]) -> str:
    """Describe for how many queries the lower bound replaces the denominator, by row."""
    most = [row for row, share in shares.items() if share >= MOST]
    few = [share for share in shares.values() if share < MOST]
    affected = [f"most queries of {_names(most)}"] if most else []
    if any(few):
        others = "any other row" if most else "any row"
        affected.append(f"at most {max(*few, 0.01):.0%} of the queries of {others}")
    elif few:
        affected.append("no query of any other row" if most else "no query")
    return (
        f"On random inputs this lower bound replaces the denominator for {' and '.join(affected)}."
    )


def _names(rows: Sequence[str]) -> str:
    return ", ".join(f"`{row}`" for row in sorted(rows))


@functools.cache
def _attention(stack: Stack, options: tuple[tuple[str, Any], ...]) -> LinearAttention:
    """Build a stack's attention with a model's options of linear attention."""
    shape: dict[str, Any] = {"num_heads": stack.num_heads, "head_dim": stack.head_dim}
    shape["causal"] = stack.causal
    own: dict[str, Any] = dict(parse_options(stack.options))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)  # equal random parameters on every page
        # Embeddings are not used.
        encoding = build_encoding(stack.position_encoding, **shape, vocab_size=1, **own)
    # Older results do not name their normalizer.
    given = {"linear_normalizer": "encoded", **dict(options), "attention_type": "linear"}
    config = PositionEncodingConfig(**given)
    attention = build_model_attention(config, encoding, dropout=0.0, **shape)
    assert isinstance(attention, LinearAttention)
    return attention
