"""Saved figures: small files with the pixels of matplotlib's own."""

import base64
import re
from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fairseq_plugins.common import pictures
from fairseq_plugins.common.pictures import save_for_print, save_picture, smaller_svg


def draw(colours: str) -> Figure:
    figure = Figure(figsize=(4, 4))
    noise = np.random.default_rng(1).normal(size=(80, 80))
    figure.subplots().imshow(noise, cmap=colours, interpolation="none")
    return figure


def images(svg: bytes) -> list[np.ndarray]:
    found = re.findall(rb"data:image/png;base64,([^\"]+)", svg)
    return [np.asarray(Image.open(BytesIO(base64.b64decode(one))).convert("RGBA")) for one in found]


@pytest.mark.parametrize("colours", ["Greys", "RdBu_r"])
def test_an_svg_has_the_same_pixels_in_less_room(colours):
    file = BytesIO()
    draw(colours).savefig(file, format="svg")
    smaller = smaller_svg(file.getvalue())
    (before,), (after,) = images(file.getvalue()), images(smaller)
    assert (before == after).all() and len(smaller) < 0.8 * len(file.getvalue())


def test_a_png_that_would_be_too_large_is_coarser(tmp_path, monkeypatch):
    save_picture(draw("Greys"), tmp_path / "fine", dpi=200)
    most = (tmp_path / "fine.png").stat().st_size // 2
    monkeypatch.setattr(pictures, "MOST_BYTES", most)
    save_picture(draw("Greys"), tmp_path / "coarse", dpi=200)
    assert (tmp_path / "coarse.png").stat().st_size <= most
    assert Image.open(tmp_path / "coarse.png").size < Image.open(tmp_path / "fine.png").size


def test_names_may_have_dots(tmp_path):
    for name in ("v1.5", "v1.6"):
        save_picture(draw("Greys"), tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{ending}" for name in ("v1.5", "v1.6") for ending in ("png", "svg")
    }


def test_pictures_for_print_have_their_fonts(tmp_path):
    figure = draw("Greys")
    figure.axes[0].set_title("a title")
    for ending in pictures.FORMATS:
        for folder in ("first", "second"):
            save_for_print(figure, tmp_path / folder / f"x{ending}")
    first, second = (
        [(tmp_path / folder / f"x{ending}").read_bytes() for ending in pictures.FORMATS]
        for folder in ("first", "second")
    )
    assert first == second
    pdf, svg, png = first
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    assert b"<svg" in svg and b"<text" not in svg
    assert Image.open(BytesIO(png)).size == (1200, 1200)
