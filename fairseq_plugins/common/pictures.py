"""Pictures as files: PNG to look at and SVG to print, the same bytes each time."""

from pathlib import Path
from typing import Any

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
        picture.savefig(png, format="png", dpi=dpi, metadata={"Software": None})
        picture.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
