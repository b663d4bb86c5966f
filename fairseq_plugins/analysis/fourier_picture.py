"""Picture of functions that a linear layer fits with sinusoids (BERT paper, App. A.2, Eq. 10).

python -m fairseq_plugins.analysis.fourier_picture [STEM]
"""

import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.encodings.frequencies import geometric

LENGTH, DIM = 128, 16
DIMS = (4, 8, 16, 32, 64)
SETS = ("fixed", "fourier")
LABELS = {
    "fixed": "of the fixed encoding, 10000^(-2k/D)",
    "fourier": "of a Fourier series, k pi / length",
}


def frequencies(name: str, dim: int) -> Tensor:
    """Return D/2 frequencies (D/2,) float64: ``fixed`` or ``fourier``."""
    if name == "fixed":
        return geometric(dim // 2, dim).double()
    return math.pi * torch.arange(1, dim // 2 + 1).double() / LENGTH


def bump() -> Tensor:
    """Return a target for attention (T,): a Gaussian bump of width 6 at position 40."""
    return torch.exp(-(((torch.arange(LENGTH).double() - 40) / 6) ** 2))


def best_series(angular: Tensor, target: Tensor) -> Tensor:
    """Fit a constant and the sines and cosines of the frequencies (D/2,) to a target (T,)."""
    angles = torch.arange(len(target)).double().unsqueeze(1) * angular
    ones = torch.ones(len(target), 1, dtype=torch.float64)
    given = torch.cat((angles.sin(), angles.cos(), ones), dim=1)
    return given @ torch.linalg.lstsq(given, target, driver="gelsd").solution


def fit_error(name: str, dim: int) -> float:
    """Return the root mean square error of the best series for the bump."""
    target = bump()
    return float((best_series(frequencies(name, dim), target) - target).square().mean().sqrt())


def draw() -> Any:
    """Draw the best series of D = 16 and the errors by D; returns matplotlib's figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    target = bump()
    left.plot(target.tolist(), color="black", label="wanted")
    for name in SETS:
        left.plot(best_series(frequencies(name, DIM), target).tolist(), label=LABELS[name])
        right.plot(DIMS, [fit_error(name, dim) for dim in DIMS], "o-", label=LABELS[name])
    left.set_title(f"best sum of sines and cosines, D = {DIM}", fontsize=10)
    left.set_xlabel("position")
    left.set_ylabel("value")
    left.legend(left.lines[:1], ["wanted"], fontsize=8)
    right.set_title("its error", fontsize=10)
    right.set_xlabel("features D")
    right.set_ylabel("root mean square error")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.legend(title="frequencies", fontsize=8, title_fontsize=8)
    return figure


if __name__ == "__main__":
    save_picture(draw(), Path(*sys.argv[1:] or ["docs/pictures/fourier"]), dpi=80)
