"""Picture of W_s = P^H Lambda(s) P, found from the matrices of an encoding alone.

python -m fairseq_plugins.analysis.decomposition_picture [NAME] [STEM]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.decomposition import decompose
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.canonical import canonical_form

DIM, POSITION = 12, 5


def relative_matrices(name: str, dim: int = DIM) -> Callable[[int], Tensor]:
    """Return the function s -> W_s (D, D) of a real encoding, of its first head.

    The score of a query q at 0 and a key k at s is q^T W_s k.

    Raises:
        ValueError: an encoding that does not act on queries and keys, or not on these alone.
    """
    generator = torch.Generator().manual_seed(1)
    encoding = build_encoding(name, num_heads=1, head_dim=dim, generator=generator)
    if encoding.hooks != {"transform_query", "transform_key"}:
        raise ValueError(
            f"{name} must act on queries and keys alone to have a W_s, but its hooks are: "
            f"{', '.join(sorted(encoding.hooks)) or 'none'}."
        )
    return lambda position: canonical_form(encoding, position)[0].matrix[0]


def draw(name: str) -> Any:
    """Draw W_s, P and Lambda(s) as heat maps; returns matplotlib's figure."""
    from matplotlib.figure import Figure

    found = decompose(relative_matrices(name))
    panels = {
        f"W at {POSITION} positions apart": found.relative_matrix(POSITION),
        "P, the same at every distance": found.basis,
        f"Lambda at {POSITION}: planes that turn": found.position_matrix(POSITION),
    }
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels))
    for axis, (title, matrix) in zip(axes, panels.items(), strict=True):
        image = axis.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def main(name: str = "lrpe_type2", stem: str = "docs/pictures/decomposition") -> None:
    """Write STEM.png and STEM.svg."""
    save_picture(draw(name), Path(stem), dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:])
