"""Picture of the two orders in which relative attention multiplies (LRPE, Figure 1).

python -m fairseq_plugins.analysis.computation_picture [STEM]
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.pictures import save_picture

SIZES = {"n": 3.0, "d": 1.0}  # of a side in the drawing
LONG, GAP = SIZES["n"], 0.5  # GAP is the room between matrices


@dataclass(frozen=True)
class Matrix:
    """A factor: its label and its numbers of rows and columns, each `n` or `d`."""

    label: str
    rows: str
    columns: str


@dataclass(frozen=True)
class Product:
    """A product of three matrices, two of which are multiplied first."""

    title: str
    factors: tuple[Matrix, Matrix, Matrix]  # from left to right
    first: int  # index of the first of the two neighbours that are multiplied first

    def inner_shape(self) -> str:
        """Return the shape of the product that is computed first, as `n x n`."""
        return f"{self.factors[self.first].rows} x {self.factors[self.first + 1].columns}"

    def cost(self) -> str:
        """Return the order of the number of multiplications."""
        return "n² d" if self.inner_shape() == "n x n" else "n d²"


VANILLA = Product(
    "relative: W of t - s, inside the scores",
    (Matrix("Q", "n", "d"), Matrix("W(t-s) Kᵀ", "d", "n"), Matrix("V", "n", "d")),
    first=0,
)
LINEARISED = Product(
    "linearised: W of t on queries, W of s on keys",
    (Matrix("W(t) Q", "n", "d"), Matrix("(W(s) K)ᵀ", "d", "n"), Matrix("V", "n", "d")),
    first=1,
)


def _draw(axis: Any, product: Product) -> None:
    from matplotlib.patches import Rectangle

    left, edges = 0.0, []
    for factor in product.factors:
        width, height = SIZES[factor.columns], SIZES[factor.rows]
        at = left, -height / 2
        axis.add_patch(Rectangle(at, width, height, facecolor="#dce6f2", edgecolor="k"))
        axis.text(left + width / 2, 0, factor.label, ha="center", va="center", fontsize=9)
        edges.append((left, left + width))
        left += width + GAP
    start, end = edges[product.first][0] - GAP / 4, edges[product.first + 1][1] + GAP / 4
    around = (start, -LONG / 2 - GAP / 4), end - start, LONG + GAP / 2
    axis.add_patch(Rectangle(*around, fill=False, linestyle="--"))
    text = f"first, {product.inner_shape()}: {product.cost()} multiplications"
    axis.text((start + end) / 2, -LONG / 2 - GAP, text, ha="center", va="top", fontsize=9)
    axis.set_title(product.title, fontsize=10)
    axis.set_xlim(-GAP, left)
    axis.set_ylim(-LONG / 2 - 1.9 * GAP, LONG / 2 + GAP)
    axis.set_aspect("equal")
    axis.axis("off")


def draw() -> Any:
    """Draw both orders; returns matplotlib's figure."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.15)  # room for the titles
    figure = Figure(figsize=(9.6, 3.5), layout=layout)
    for axis, product in zip(figure.subplots(1, 2), (VANILLA, LINEARISED), strict=True):
        _draw(axis, product)
    return figure


if __name__ == "__main__":
    save_picture(draw(), Path(*sys.argv[1:] or ["docs/pictures/computation"]), dpi=80)
