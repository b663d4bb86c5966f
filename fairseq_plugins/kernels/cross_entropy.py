"""Cross-entropy from features and the output embedding, without storing the logits.

With V words, logits and their gradient are V / C times as large as the features: more than 2 GB
each for 2,048 tokens and 267,744 words. ``word_blocks.py`` computes them in blocks.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels.derivatives import first_derivative
from fairseq_plugins.kernels.precision import wide_type, without_autocast
from fairseq_plugins.kernels.word_blocks import (
    OutputLayer,
    Targets,
    best_words,
    gradients_by_words,
    losses_and_gradients,
    losses_by_words,
)


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduce: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of ``features @ weight.T + bias``, with and without smoothing.

    For summed losses on a CPU in float32 or wider, gradients are computed with the loss and kept
    for backward; a second backward pass recomputes them. Otherwise backward recomputes the logits
    block by block: gradients of single losses are known only then, and half precision is rounded
    once instead of in a sum over blocks.

    Args:
        features: (N, C).
        weight: (V, C).
        target: (N,), int64.
        bias: (V,).
        ignore_index: tokens with this target have no loss.
        label_smoothing: as in fairseq's ``label_smoothed_nll_loss``.
        reduce: sum over tokens; otherwise losses are (N,).

    Returns:
        The loss, with gradients, and the sum of -log p(target), without; both in float32 or wider.
        They are equal without smoothing.

    Raises:
        ValueError: shapes that do not fit, or a smoothing outside [0, 1).
        IndexError: on a CPU, a target outside 0..V - 1.
    """
    _check(features, weight, target, bias, label_smoothing)
    counts = target != ignore_index
    if reduce and not features.is_cuda and not counts.all():
        # Ignored tokens are dropped; on a GPU that would wait for the device.
        features, target, counts = features[counts], target[counts], counts[counts]
    targets = _targets(target, counts, len(weight), label_smoothing)
    operand = _operand_type(features)
    return _compute(features, weight, bias, targets, operand, reduce)


def linear_best_words(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the argmax of ``features @ weight.T + bias`` over words: (N, C), (V, C) -> (N,)."""
    with torch.no_grad():
        operand = _operand_type(features)
        return without_autocast(best_words)(features, OutputLayer(weight, bias), operand)


def _check(
    features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, label_smoothing: float
) -> None:
    if features.dim() != 2 or weight.dim() != 2 or features.size(1) != weight.size(1):
        shapes = f"{tuple(features.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"`features` and `weight` must be (N, C) and (V, C), but are {shapes}.")
    if target.shape != features.shape[:1]:
        raise ValueError(f"`target` must be ({len(features)},), but is {tuple(target.shape)}.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"`bias` must be ({len(weight)},), but is {tuple(bias.shape)}.")
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"`label_smoothing` must be in [0, 1), but is {label_smoothing}.")
    if label_smoothing and len(weight) < 2:
        raise ValueError(
            f"`label_smoothing` must be 0 where there is one word, but is {label_smoothing}."
        )


def _targets(target: Tensor, counts: Tensor, size: int, label_smoothing: float) -> Targets:
    words = target.masked_fill(~counts, 0)
    if not target.is_cuda and len(words) and not 0 <= int(words.min()) <= int(words.max()) < size:
        raise IndexError(f"targets must be in [0, {size}), but one is not.")
    spread = label_smoothing / (size - 1) if label_smoothing else 0.0
    return Targets(words, counts, 1.0 - label_smoothing - spread, spread)


def _operand_type(features: Tensor) -> torch.dtype:
    """Return the dtype of a product's operands.

    On a GPU that of autocast or of the features; on a CPU that of sums, float32 or wider.
    """
    if not features.is_cuda:
        return wide_type(features)
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return features.dtype


@without_autocast
def _compute(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Targets,
    operand: torch.dtype,
    reduce: bool,
) -> tuple[Tensor, Tensor]:
    tensors = [features, weight] if bias is None else [features, weight, bias]
    wide = wide_type(features)
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        loss, nll, _ = losses_by_words(features, OutputLayer(weight, bias), targets, operand)
    elif reduce and not features.is_cuda and all(tensor.dtype == wide for tensor in tensors):
        loss, nll = _Losses.apply(features, weight, bias, targets, operand, True)
        return loss, nll
    else:
        loss, nll = _Losses.apply(features, weight, bias, targets, operand, False)
    return (loss.sum(), nll.sum()) if reduce else (loss, nll)


class _Losses(torch.autograd.Function):
    """Losses (N,), or with ``is_summed`` their sum, whose gradients are computed in forward."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Targets,
        operand: torch.dtype,
        is_summed: bool,
    ) -> tuple[Tensor, Tensor]:
        output = OutputLayer(weight, bias)
        # No saved tensors, so that backward returns them without copying a gradient as large as the
        # weight.
        ctx.gradients = None
        if is_summed:
            wanted = ctx.needs_input_grad[:3]
            losses, ctx.gradients = losses_and_gradients(features, output, targets, wanted)
            loss, nll = losses.loss.sum(), losses.nll.sum()
        else:
            losses = losses_by_words(features, output, targets, operand)
            loss, nll = losses.loss, losses.nll
        words, counts, *shares = targets
        ctx.save_for_backward(features, weight, bias, words, counts, losses.log_sum)
        ctx.shares, ctx.operand = shares, operand
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @first_derivative
    @without_autocast
    def backward(  # type: ignore[no-untyped-def]
        ctx, saved: tuple[Tensor, ...], slopes: Tensor, _: Any
    ) -> tuple[Any, ...]:
        features, weight, bias, words, counts, log_sum = saved
        if ctx.gradients is None:
            gradients = gradients_by_words(
                features,
                OutputLayer(weight, bias),
                Targets(words, counts, *ctx.shares),
                log_sum,
                slopes.expand(len(features)),
                ctx.operand,
                ctx.needs_input_grad[:3],
            )
            return *gradients, None, None, None
        gradients, ctx.gradients = ctx.gradients, None
        if float(slopes) != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient *= slopes
        return *gradients, None, None, None
