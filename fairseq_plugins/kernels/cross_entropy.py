"""Cross-entropy from features and the output embedding, without storing the logits.

With V words, logits and their gradient are V / C times as large as the features: more than 2 GB
each for 2,048 tokens and 267,744 words. ``word_blocks.py`` computes them in blocks.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.kernels.precision import without_autocast
from fairseq_plugins.kernels.word_blocks import (
    Gradients,
    OutputLayer,
    Targets,
    best_words,
    gradients_by_words,
    losses_and_gradients,
    losses_by_words,
    wide_type,
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
    """Compute the cross-entropy of ``features @ weight.T + bias``, smoothed as in fairseq and not.

    For summed losses on a CPU in float32 or wider, gradients are computed with the loss and kept
    for backward; a second backward pass computes them again. Otherwise backward recomputes the
    logits block by block, since the slopes of single losses are known only then, and in half
    precision this saves a sum of gradients.

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
    return _run(features, weight, bias, targets, operand, reduce)


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
    """Return the dtype of operands: on a GPU that of autocast or features, on a CPU of sums."""
    if not features.is_cuda:
        return wide_type(features)
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return features.dtype


@without_autocast
def _run(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Targets,
    operand: torch.dtype,
    reduce: bool,
) -> tuple[Tensor, Tensor]:
    given = [features, weight] if bias is None else [features, weight, bias]
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in given):
        found = losses_by_words(features, OutputLayer(weight, bias), targets, operand)
        return (found.loss.sum(), found.nll.sum()) if reduce else (found.loss, found.nll)
    wide = wide_type(features)
    if reduce and not features.is_cuda and all(tensor.dtype == wide for tensor in given):
        loss, nll = _SummedLoss.apply(features, weight, bias, targets)
        return loss, nll
    loss, nll = _TokenLosses.apply(features, weight, bias, targets, operand)
    return (loss.sum(), nll.sum()) if reduce else (loss, nll)


class _TokenLosses(torch.autograd.Function):
    """Losses (N,), whose backward recomputes the logits."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Targets,
        operand: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        loss, nll, log_sum = losses_by_words(features, OutputLayer(weight, bias), targets, operand)
        _keep(ctx, features, weight, bias, targets, log_sum, operand)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(ctx, slopes: Tensor, _: Any) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        return *_make_again(ctx, slopes), None, None


class _SummedLoss(torch.autograd.Function):
    """The sum of losses, with gradients computed in the forward pass."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[:3]
        output = OutputLayer(weight, bias)
        (loss, nll, log_sum), gradients = losses_and_gradients(features, output, targets, wanted)
        # Not saved tensors, so that backward can return them without copying a gradient of the
        # size of the weight.
        ctx.made = gradients
        _keep(ctx, features, weight, bias, targets, log_sum, features.dtype)
        total = nll.sum()
        ctx.mark_non_differentiable(total)
        return loss.sum(), total

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(ctx, slope: Tensor, _: Any) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        made, ctx.made = ctx.made, None
        saved = ctx.saved_tensors  # raises where the graph is freed
        if made is None:
            return *_make_again(ctx, slope.expand(len(saved[0]))), None
        if float(slope) != 1.0:
            for gradient in made:
                if gradient is not None:
                    gradient *= slope
        return *made, None


def _keep(
    ctx: Any,
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Targets,
    log_sum: Tensor,
    operand: torch.dtype,
) -> None:
    ctx.save_for_backward(features, weight, bias, targets.words, targets.counts, log_sum)
    ctx.shares, ctx.operand = (targets.hit, targets.spread), operand


def _make_again(ctx: Any, slopes: Tensor) -> Gradients:
    features, weight, bias, words, counts, log_sum = ctx.saved_tensors
    return gradients_by_words(
        features,
        OutputLayer(weight, bias),
        Targets(words, counts, *ctx.shares),
        log_sum,
        slopes,
        ctx.operand,
        ctx.needs_input_grad[:3],
    )
