"""Cross-entropy of an output layer without logits, against the usual way through logits."""

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.reference import compare
from benchmarks.runner import Case
from benchmarks.timing import Call
from fairseq_plugins.kernels import linear_cross_entropy, naive_linear_cross_entropy

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
PARTS = ("forward+backward", "evaluation")
PLAIN, BLOCKWISE = "plain", "blockwise"
# (tokens, width, words) of the checks: several blocks, the last one partial.
_CHECKED = ((5, 16, 40), (300, 24, 9001))


def through_logits(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Compute the loss as fairseq's ``cross_entropy``: logits, log-softmax in float32, sum."""
    log_probs = F.log_softmax(F.linear(features, weight), dim=-1, dtype=torch.float32)
    return F.nll_loss(log_probs, target, reduction="sum")


def without_logits(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Compute this project's loss, summed."""
    return linear_cross_entropy(features, weight, target)[0]


LOSSES: dict[str, Loss] = {PLAIN: through_logits, BLOCKWISE: without_logits}


def losses(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Time, and peak memory beyond inputs and the weight's gradient."""
    for name in LOSSES:
        check_loss(name, context)
    for size in settings["vocabularies"]:
        tensors = _draw(settings["tokens"], settings["width"], size, context)
        for part in PARTS:
            calls = {name: _call(loss, tensors, part) for name, loss in LOSSES.items()}
            times = {name: f"{name} {part}@{size}" for name in LOSSES}
            sizes = {name: f"{part} {name} bytes@{size}" for name in LOSSES}
            ratio = f"{part} {BLOCKWISE}/{PLAIN}@{size}"
            yield Case(
                {times[name]: call for name, call in calls.items()},
                {ratio: (times[BLOCKWISE], times[PLAIN])},
                memory={sizes[name]: call for name, call in calls.items()},
                memory_ratios={f"memory {ratio}": (sizes[BLOCKWISE], sizes[PLAIN])},
                kept=tensors[1].nbytes if part == PARTS[0] else 0,
            )


def check_loss(name: str, context: Context) -> None:
    """Compare loss and gradients with the formula in float64; raise Mismatch."""
    for sizes in _CHECKED:
        features, weight, target = _draw(*sizes, context)
        exact, table = (tensor.detach().double().requires_grad_() for tensor in (features, weight))
        right, _ = naive_linear_cross_entropy(exact, table, target)
        loss = LOSSES[name](features, weight, target)
        compare(
            f"{name}, {sizes[0]} tokens",
            ("the loss", "the gradient of the features", "the gradient of the weight"),
            [loss.detach(), *torch.autograd.grad(loss, (features, weight))],
            [right.detach(), *torch.autograd.grad(right, (exact, table))],
        )


def _draw(tokens: int, width: int, size: int, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features, a weight scaled as at initialisation, and targets."""
    features, weight = (
        torch.randn(rows, width, device=context.device, dtype=context.dtype)
        for rows in (tokens, size)
    )
    weight *= width**-0.5
    target = torch.randint(size, (tokens,), device=context.device)
    return features.requires_grad_(), weight.requires_grad_(), target


def _call(loss: Loss, tensors: tuple[Tensor, Tensor, Tensor], part: str) -> Call:
    if part == PARTS[0]:
        return lambda: torch.autograd.grad(loss(*tensors), tensors[:2])
    return torch.no_grad()(functools.partial(loss, *tensors))
