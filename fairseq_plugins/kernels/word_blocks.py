"""Cross-entropy of a linear output layer and its gradients, in blocks of words or tokens.

The logits l = F W^T + b of all tokens are never in memory at once. With p = softmax(l), t the
target, V words and smoothing e as in fairseq's ``label_smoothed_nll_loss`` (e_i = e / (V - 1)):

    loss = (1 - e - e_i) (-log p_t) + e_i sum_v (-log p_v)
    d loss / d l_v = p_v - (1 - e - e_i) [v = t] - e_i

The sums have two orders. By words (``losses_by_words``, ``gradients_by_words``) the logits are
recomputed for the gradients; sums over tokens are within one product, so that half precision rounds
once. By tokens (``losses_and_gradients``) gradients are computed with the losses, for a few tokens
and all words at a time: a quarter fewer products, but every block of tokens reads and writes the
weight's gradient.

Shapes: N tokens, C features, V words.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.kernels.chunked import chunks
from fairseq_plugins.kernels.operands import matrix_product
from fairseq_plugins.kernels.precision import wide_type

# Blocks of tokens have this many logits, 32 MiB, but at least 128 tokens: with fewer, passes over
# the weight and its gradient dominate. Measured: 256 and 512 tokens were no faster at V = 267,744;
# at V = 8,000 blocks of 128 were slower than computing all logits.
_MIN_TOKENS, _BLOCK = 128, 2**23
# Logits that are processed at once, within a CPU core's cache.
_STRIP = 2**16
# Logits in a block of words: 8 MiB on a CPU, 128 MiB on a GPU; two blocks exist at once.
_LOGITS = {"cpu": 2**21, "cuda": 2**25}
_MIN_WORDS = 256
# float16 cannot represent numbers below 6e-8, such as most probabilities of 267,744 words.
# Gradients of logits are at most 1, so that this scale keeps them in range.
_HALF_SCALE = 2.0**15


class OutputLayer(NamedTuple):
    """An output layer: weight (V, C), and bias (V,) or None."""

    weight: Tensor
    bias: Tensor | None


class Targets(NamedTuple):
    """Target words and the weights of the terms of the loss."""

    words: Tensor  # (N,), indices; any valid index for ignored tokens
    counts: Tensor  # (N,), False for ignored tokens
    hit: float  # 1 - e - e_i, the weight of the target's log-probability
    spread: float  # e_i, the weight of every word's log-probability


class Losses(NamedTuple):
    """The loss, -log p of the target and the log-sum-exp of each token, (N,)."""

    loss: Tensor
    nll: Tensor
    log_sum: Tensor


class Gradients(NamedTuple):
    """Gradients of features (N, C), weight (V, C) and bias (V,); None where not needed."""

    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


Wanted = tuple[bool, bool, bool]  # of features, weight and bias


def losses_by_words(
    features: Tensor, output: OutputLayer, targets: Targets, operand: torch.dtype
) -> Losses:
    """Compute the loss of each token, in float32 or wider.

    Args:
        features: (N, C).
        output: the layer.
        targets: of the tokens.
        operand: dtype of the operands of products; sums are always float32 or wider.
    """
    wide = wide_type(features)
    features = features.to(operand)
    top = features.new_full((len(features), 1), torch.finfo(wide).min, dtype=wide)
    exps, at_target, offsets = (torch.zeros_like(top) for _ in range(3))
    for words, logits in _blocks_of_words(features, output, operand, wide):
        inside, index = _within(targets.words, words)
        at_target = torch.where(inside, logits.gather(1, index), at_target)
        higher = torch.maximum(top, logits.amax(1, keepdim=True))
        logits -= higher
        if targets.spread:
            # Relative to the top, since sums of large logits over all words would cancel.
            if words.start:
                offsets += words.start * (top - higher)
            offsets += logits.sum(1, keepdim=True)
        exps = exps * (top - higher).exp() + logits.exp_().sum(1, keepdim=True)
        top = higher
    return _losses(top, exps, at_target - top, offsets, targets, len(output.weight))


def gradients_by_words(
    features: Tensor,
    output: OutputLayer,
    targets: Targets,
    log_sum: Tensor,
    slopes: Tensor,
    operand: torch.dtype,
    wanted: Wanted,
) -> Gradients:
    """Compute the gradients of sum(slopes * loss).

    Args:
        features: (N, C).
        output: the layer.
        targets: of the tokens.
        log_sum: (N,), from ``losses_by_words``.
        slopes: (N,), gradient of each token's loss.
        operand: see ``losses_by_words``.
        wanted: which are needed.
    """
    wide = wide_type(features)
    # Large slopes, such as under a scaled loss, must not leave the range of half precision.
    slopes = slopes.to(wide).masked_fill(~targets.counts, 0.0)
    unit = slopes.abs().amax() if len(slopes) else slopes.new_ones(())
    unit = unit.clamp_min(torch.finfo(wide).tiny)
    scale = _HALF_SCALE if operand == torch.float16 else 1.0
    slopes, unit = (slopes / unit * scale).unsqueeze(1), unit / scale
    narrow = features.to(operand)
    grad_features, grad_weight, grad_bias = _reserve(features, output, wanted, wide)
    log_sum = log_sum.unsqueeze(1)
    for words, logits in _blocks_of_words(narrow, output, operand, wide):
        logits -= log_sum
        logits.exp_()
        _subtract_target(logits, targets, words)
        logits *= slopes
        if grad_bias is not None:
            grad_bias[words] = logits.sum(0) * unit
        weight = output.weight[words].to(operand)
        factors = logits.to(operand)
        if grad_features is not None:
            grad_features += matrix_product(factors, weight, wide)
        if grad_weight is not None:
            grad_weight[words] = matrix_product(factors.mT, narrow, wide) * unit
    if grad_features is not None:
        grad_features = (grad_features * unit).to(features.dtype)
    return Gradients(grad_features, grad_weight, grad_bias)


def losses_and_gradients(
    features: Tensor, output: OutputLayer, targets: Targets, wanted: Wanted
) -> tuple[Losses, Gradients]:
    """Compute the loss of each token and the gradients of their sum, in float32 or wider."""
    weight, bias = output
    grad_features, grad_weight, grad_bias = _reserve(features, output, wanted, features.dtype)
    tokens = max(_MIN_TOKENS, _BLOCK // len(weight))
    buffer = features.new_empty(min(tokens, len(features)), len(weight))
    losses: list[Losses] = []
    for rows in chunks(len(features), tokens):
        rows_features = features[rows]
        logits = torch.mm(rows_features, weight.mT, out=buffer[: len(rows_features)])
        if bias is not None:
            logits += bias
        row_targets = targets._replace(words=targets.words[rows], counts=targets.counts[rows])
        losses.append(_turn_into_slopes(logits, row_targets))
        if grad_features is not None:
            torch.mm(logits, weight, out=grad_features[rows])
        if grad_weight is not None:
            # The first block overwrites, which saves a pass to write zeros.
            beta = 0.0 if rows.start == 0 else 1.0
            grad_weight.addmm_(logits.mT, rows_features, beta=beta)
        if grad_bias is not None:
            grad_bias += logits.sum(0)
    if grad_weight is not None and not losses:
        grad_weight.zero_()
    parts = [torch.cat(part) for part in zip(*losses, strict=True)] or [features.new_empty(0)] * 3
    return Losses(*parts), Gradients(grad_features, grad_weight, grad_bias)


def best_words(features: Tensor, output: OutputLayer, operand: torch.dtype) -> Tensor:
    """Return the word with the largest logit of each token, (N,); the first of several."""
    wide = wide_type(features)
    features = features.to(operand)
    top = features.new_full((len(features),), float("-inf"), dtype=wide)
    best = torch.zeros(len(features), dtype=torch.long, device=features.device)
    for words, logits in _blocks_of_words(features, output, operand, wide):
        highest, index = logits.max(1)
        best = torch.where(highest > top, index + words.start, best)
        top = torch.maximum(top, highest)
    return best


def _blocks_of_words(
    features: Tensor, output: OutputLayer, operand: torch.dtype, wide: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of words with their logits (N, size), which may be overwritten."""
    limit = _LOGITS.get(features.device.type, _LOGITS["cpu"])
    size = max(_MIN_WORDS, limit // max(1, len(features)))
    for words in chunks(len(output.weight), size):
        logits = matrix_product(features, output.weight[words].to(operand).mT, wide)
        if output.bias is not None:
            logits += output.bias[words]
        yield words, logits


def _within(target: Tensor, words: slice) -> tuple[Tensor, Tensor]:
    """Return a mask of the targets among these words, and their indices, else 0: each (N, 1)."""
    index = (target - words.start).unsqueeze(1)
    inside = (index >= 0) & (index < words.stop - words.start)
    return inside, index.masked_fill(~inside, 0)


def _subtract_target(p: Tensor, targets: Targets, words: slice) -> None:
    """Turn probabilities (N, size) of these words into slopes of the logits, in place."""
    if targets.spread:
        p -= targets.spread
    inside, index = _within(targets.words, words)
    p.scatter_add_(1, index, inside.to(p.dtype) * -targets.hit)


def _turn_into_slopes(logits: Tensor, targets: Targets) -> Losses:
    """Compute losses from logits (n, V) of all words, and overwrite these with their slopes."""
    losses = []
    for rows in chunks(len(logits), max(1, _STRIP // logits.size(1))):
        strip, counts = logits[rows], targets.counts[rows]
        row_targets = targets._replace(words=targets.words[rows], counts=counts)
        top = strip.amax(1, keepdim=True)
        strip -= top
        at_target = strip.gather(1, row_targets.words.unsqueeze(1))
        offsets = strip.sum(1, keepdim=True) if targets.spread else torch.zeros_like(top)
        exps = strip.exp_().sum(1, keepdim=True)
        strip /= exps
        _subtract_target(strip, row_targets, slice(0, strip.size(1)))
        strip.masked_fill_(~counts.unsqueeze(1), 0.0)
        losses.append(_losses(top, exps, at_target, offsets, row_targets, strip.size(1)))
    return Losses(*(torch.cat(part) for part in zip(*losses, strict=True)))


def _losses(
    top: Tensor, exps: Tensor, at_target: Tensor, offsets: Tensor, targets: Targets, size: int
) -> Losses:
    """Combine statistics (N, 1) of each token's logits l into losses.

    Args:
        top: the largest.
        exps: the sum of exp(l - top).
        at_target: the target's l - top.
        offsets: the sum of l - top.
        targets: of the tokens.
        size: V.
    """
    log_exps = exps.log()
    nll = log_exps - at_target
    loss = nll
    if targets.spread:
        loss = targets.hit * nll + targets.spread * (size * log_exps - offsets)
    log_sum = (top + log_exps).squeeze(1)
    ignored = ~targets.counts
    return Losses(
        loss.squeeze(1).masked_fill(ignored, 0.0), nll.squeeze(1).masked_fill(ignored, 0.0), log_sum
    )


def _reserve(features: Tensor, output: OutputLayer, wanted: Wanted, wide: torch.dtype) -> Gradients:
    """Allocate the gradients; those of features are zeros in ``wide``."""
    weight, bias = output
    return Gradients(
        torch.zeros_like(features, dtype=wide) if wanted[0] else None,
        torch.empty_like(weight) if wanted[1] else None,
        torch.zeros_like(bias) if wanted[2] and bias is not None else None,
    )
