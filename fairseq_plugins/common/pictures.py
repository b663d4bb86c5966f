"""Pictures as files: PNG to look at and SVG to print, the same bytes each time."""

from io import BytesIO
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.common.files import writing

DPI = 110


def save_picture(picture: Any, stem: Path, dpi: int = DPI) -> None:
    """Write a matplotlib figure as ``stem``.png and ``stem``.svg, both or none of them."""
    from matplotlib import rc_context  # an extra; whoever has a figure has it

    # Without a salt of its own, names inside an SVG are drawn anew each time; the word none would
    # be no salt. Text stays text.
    salt = f"{stem.name}.svg" if stem.name == "none" else stem.name
    with (
        rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}),
        writing(stem.with_suffix(".png"), stem.with_suffix(".svg")) as (png, svg),
    ):
        save_png(picture, png, dpi)
        picture.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})


def save_png(picture: Any, file: IO[bytes], dpi: int = DPI) -> None:
    """Write a matplotlib figure as PNG in 256 colours at most, less than half of the bytes."""
    from PIL import Image

    drawn = BytesIO()
    picture.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, format="PNG", optimize=True)
