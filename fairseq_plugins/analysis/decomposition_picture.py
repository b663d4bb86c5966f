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
from fairseq_plugins.analysis.figure_files import Panel, draw_panels
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
    found = decompose(relative_matrices(name))
    matrices = {
        f"W at {POSITION} positions apart": found.relative_matrix(POSITION),
        "P, the same at every distance": found.basis,
        f"Lambda at {POSITION}: planes that turn": found.position_matrix(POSITION),
    }
    panels = [
        Panel(title, matrix, dark=False, limits=(-1.0, 1.0)) for title, matrix in matrices.items()
    ]
    return draw_panels(panels, size=(3.2, 3.0))


def main(name: str = "lrpe_type2", stem: str = "docs/pictures/decomposition") -> None:
    """Write STEM.png and STEM.svg."""
    save_picture(draw(name), Path(stem), dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:])
