"""Figures that cost nothing, for tests that do not look at them."""

from typing import IO, Any

import pytest
from matplotlib.figure import Figure
from PIL import Image


def save_points(patch: pytest.MonkeyPatch) -> None:
    """Save every figure as one point: to draw them takes most of the time of a table's run."""
    patch.setattr(Figure, "savefig", _save_a_point)


def _save_a_point(_: Figure, file: IO[bytes], *, format: str, **__: Any) -> None:
    if format == "png":
        Image.new("RGB", (1, 1)).save(file, "PNG")
    else:
        file.write(b"<svg/>")
