"""Cross-entropy of an output layer without logits, against the usual way through logits."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.context import Context, Settings
from benchmarks.limits import count_work, peak_settings
from benchmarks.memory import peak_bytes
from benchmarks.record import Found
from benchmarks.reference import compare
from benchmarks.timing import Pace, interleave
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


def cross_entropy_settings(device: str, quick: bool) -> Settings:
    """Choose the vocabularies of WikiText-103 and RoBERTa, and a small one."""
    return {
        "width": 16 if quick else 512,
        "tokens": 150 if quick else 2048,
        "vocabularies": [600, 50] if quick else [267744, 50265, 8000],
        "dtype": "bfloat16" if device == "gpu" else "float32",
        "pace": vars(Pace(0.05, 2, 3) if quick else Pace(60.0, 3, 20)),
        "peaks": peak_settings(device, quick),
    }


def run_cross_entropy(settings: Settings, context: Context) -> Found:
    """Measure time, and peak memory beyond inputs and the weight's gradient."""
    found = Found()
    for name in LOSSES:
        check_loss(name, context)
    for size in settings["vocabularies"]:
        tensors = _draw(settings["tokens"], settings["width"], size, context)
        for part in PARTS:
            runs = {name: _run(loss, tensors, part) for name, loss in LOSSES.items()}
            _add_peaks(found, runs, part, tensors, context)
            samples = interleave(runs, Pace(**settings["pace"]), context.device)
            found.add(samples, f" {part}@{size}")
            for name, run in runs.items():
                found.work[f"{name} {part}@{size}"] = count_work(run)
            key = f"{part} {BLOCKWISE}/{PLAIN}@{size}"
            found.add_ratio(key, samples.ratios(BLOCKWISE, PLAIN))
            memory = found.ratios[f"memory {key}"]
            context.say(f"  {key}: {found.ratios[key]:.2f} of the time, {memory:.3f} of the memory")
    return found


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


def _run(loss: Loss, tensors: tuple[Tensor, Tensor, Tensor], part: str) -> Callable[[], None]:
    features, weight, target = tensors

    def train() -> None:
        features.grad = weight.grad = None
        loss(features, weight, target).backward()

    def evaluate() -> None:
        with torch.no_grad():
            loss(features, weight, target)

    return train if part == PARTS[0] else evaluate


def _add_peaks(
    found: Found,
    runs: dict[str, Callable[[], None]],
    part: str,
    tensors: tuple[Tensor, Tensor, Tensor],
    context: Context,
) -> None:
    """Measure peak memory; the weight's gradient, the same in both, is not counted."""
    features, weight, _ = tensors
    size, kept = len(weight), weight.numel() * weight.element_size() if part == PARTS[0] else 0
    for name, run in runs.items():
        features.grad = weight.grad = None  # else freed, and subtracted, within the run
        found.values[f"{part} {name} bytes@{size}"] = peak_bytes(run, context.device) - kept
    peaks = [found.values[f"{part} {name} bytes@{size}"] for name in (BLOCKWISE, PLAIN)]
    found.ratios[f"memory {part} {BLOCKWISE}/{PLAIN}@{size}"] = round(peaks[0] / peaks[1], 5)
