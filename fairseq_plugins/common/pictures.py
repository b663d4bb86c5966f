"""Reproducible PNG, SVG and PDF files of figures."""

import base64
import re
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.common.files import with_ending, writing

DPI = 110
MOST_BYTES = 500 * 1024  # limit of a committed file, as in .pre-commit-config.yaml
FORMATS = (".pdf", ".svg", ".png")  # endings of `save_for_print`
PRINT_DPI = 300
_COARSER = 0.85  # resolution of the next try for a PNG of more bytes
_FONTS = ["DejaVu Sans"]  # an SVG repeats this list for every text
_INDENT = re.compile(rb"\n +(?=<)")
_EMBEDDED = re.compile(rb"(?<=data:image/png;base64,)([^\"]+)")


def save_picture(picture: Any, stem: Path, dpi: int = DPI) -> None:
    """Write a matplotlib figure as ``stem``.png and ``stem``.svg, atomically."""
    from matplotlib import rc_context  # an optional dependency

    # A fixed salt makes the ids inside an SVG reproducible; matplotlib takes "none" for no salt.
    salt = f"{stem.name}.svg" if stem.name == "none" else stem.name
    with (
        rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.sans-serif": _FONTS}),
        writing(with_ending(stem, ".png"), with_ending(stem, ".svg")) as (png, svg),
    ):
        save_png(picture, png, dpi)
        drawn = BytesIO()
        picture.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        svg.write(smaller_svg(drawn.getvalue()))


def save_for_print(picture: Any, path: Path) -> None:
    """Write a matplotlib figure in the format of its file's ending, with its fonts, atomically.

    path: ends with one of `FORMATS`.
    """
    from matplotlib import rc_context

    kind = path.suffix[1:].lower()
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    # Publishers refuse matplotlib's default fonts in PDF (Type 3); in SVG letters become paths.
    with (
        rc_context({"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": path.name}),
        writing(path) as (file,),
    ):
        picture.savefig(file, format=kind, dpi=PRINT_DPI, metadata=dates)


def save_png(picture: Any, file: IO[bytes], dpi: float = DPI) -> None:
    """Write a matplotlib figure as PNG with at most 256 colours, half the size.

    The resolution is lowered until the file has at most `MOST_BYTES`.
    """
    from PIL import Image

    drawn, few = BytesIO(), BytesIO()
    picture.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(few, format="PNG", optimize=True)
    if few.tell() > MOST_BYTES:
        save_png(picture, file, dpi * _COARSER)
    else:
        file.write(few.getvalue())


def smaller_svg(svg: bytes) -> bytes:
    """Return an SVG without indents, with its images stored in less room, as the same pixels."""
    return _INDENT.sub(b"\n", _EMBEDDED.sub(_in_fewer_bits, svg))


def _in_fewer_bits(embedded: re.Match[bytes]) -> bytes:
    """Return an opaque PNG in greys, or in at most 256 colours; another one as it is."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(embedded[0]))) as image:
        is_opaque = image.convert("RGBA").getchannel("A").getextrema() == (255, 255)
        pixels = image.convert("RGB")
    for smaller in (pixels.convert("L"), pixels.quantize(256, dither=Image.Dither.NONE)):
        if is_opaque and smaller.convert("RGB").tobytes() == pixels.tobytes():
            file = BytesIO()
            smaller.save(file, format="PNG", optimize=True)
            return base64.b64encode(file.getvalue())
    return embedded[0]
