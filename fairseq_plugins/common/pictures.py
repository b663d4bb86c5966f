"""Reproducible PNG and SVG files of figures."""

from io import BytesIO
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.common.files import writing

DPI = 110


def save_picture(picture: Any, stem: Path, dpi: int = DPI) -> None:
    """Write a matplotlib figure as ``stem``.png and ``stem``.svg, atomically."""
    from matplotlib import rc_context  # an optional dependency

    # A fixed salt makes the ids inside an SVG reproducible; matplotlib takes "none" for no salt.
    salt = f"{stem.name}.svg" if stem.name == "none" else stem.name
    with (
        rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}),
        writing(stem.with_suffix(".png"), stem.with_suffix(".svg")) as (png, svg),
    ):
        save_png(picture, png, dpi)
        picture.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})


def save_png(picture: Any, file: IO[bytes], dpi: int = DPI) -> None:
    """Write a matplotlib figure as PNG with at most 256 colours, half the size."""
    from PIL import Image

    drawn = BytesIO()
    picture.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, format="PNG", optimize=True)
