"""Pictures of matrices and lines: what is drawn can be told apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairseq_plugins.analysis.figure_files import (
    Panel,
    draw_lines,
    draw_panels,
    grey_limits,
    read_numbers,
    write_numbers,
)


def test_a_few_numbers_do_not_set_the_greys() -> None:
    matrix = torch.rand(40, 40, generator=torch.Generator().manual_seed(1)).double()
    low, high = grey_limits(matrix.numpy())
    matrix[0, 0], matrix[3, 4] = 1000.0, -1000.0
    assert grey_limits(matrix.numpy()) == pytest.approx((low, high), abs=0.01)
    assert 0 < low < 0.05 and 0.95 < high < 1


def test_greys_go_on_to_all_numbers_where_nearly_all_are_the_same() -> None:
    assert grey_limits(torch.eye(200).numpy()) == (0.0, 1.0)
    assert grey_limits(torch.ones(3, 3).numpy()) == (1.0, 1.0)


def test_a_scale_has_an_arrow_where_numbers_are_beyond_it() -> None:
    dark = torch.zeros(40, 40).double()
    dark[:, :20] = torch.linspace(0, 1, 800).view(40, 20)
    dark[0, 0] = 5.0
    picture = draw_panels([Panel("dark", dark), Panel("signed", dark - 2, dark=False)])
    images = [place.images[0] for place in picture.axes if place.images]
    assert images[0].get_clim()[1] < 1 and images[0].colorbar.extend == "max"
    assert images[1].get_clim() == (-3.0, 3.0) and images[1].colorbar.extend == "neither"


def test_names_of_lines_hide_no_line_and_are_there_once() -> None:
    line = ([0.0, 1.0], [0.0, 1.0])
    same = {"a": line, "b": line}
    picture = draw_lines(
        [("1", "x", "y", same), ("2", "x", "y", same), ("3", "x", "y", {"c": line})]
    )
    picture.draw_without_rendering()
    first, second, third = picture.axes
    assert first.get_legend() is None  # the second's are its own
    for place in (second, third):
        assert place.get_legend().get_window_extent().x0 >= place.get_window_extent().x1
    assert not second.get_legend().get_window_extent().overlaps(third.get_window_extent())


def test_axes_and_scales_have_labels_and_names_are_no_formulas() -> None:
    name = "costs $x{ and $y"  # an odd formula ends the drawing
    picture = draw_panels([Panel(name, torch.eye(4), axes=("key", "query"), unit="score")])
    picture.draw_without_rendering()
    panel, scale = picture.axes
    assert (panel.get_title(), panel.get_xlabel(), panel.get_ylabel()) == (name, "key", "query")
    assert scale.get_ylabel() == "score"
    draw_lines([("1", "x", "y", {name: ([0.0, 1.0], [0.0, 1.0])})]).draw_without_rendering()


def test_marks_have_no_colour_of_the_scale() -> None:
    matrix = torch.eye(4)
    (panel, _) = draw_panels([Panel("a", matrix, dark=False, marked=matrix > 0.9)]).axes
    values, marks = panel.images
    (colour,) = {tuple(one) for one in marks.to_rgba(marks.get_array()).reshape(-1, 4) if one[3]}
    scale = values.cmap(np.linspace(0, 1, 256))
    assert np.abs(scale - np.array(colour)).max(1).min() > 0.3


def test_long_titles_stay_beside_each_other() -> None:
    names = ["learnable_sinusoidal_learnable_sinusoidal_rpe: scores", "weights", "a", "b"]
    picture = draw_panels([Panel(name, torch.eye(4)) for name in names])
    FigureCanvasAgg(picture).draw()
    boxes = [axis.title.get_window_extent() for axis in picture.axes if axis.get_title()]
    bars = [axis.get_tightbbox() for axis in picture.axes if not axis.get_title()]
    assert not any(
        box.overlaps(other) for box in boxes for other in [*boxes, *bars] if other != box
    )
    assert boxes[0].x1 <= bars[0].x0


def test_numbers_are_read_as_they_were_written(tmp_path: Path) -> None:
    large = torch.linspace(0, 1, 80 * 80).double().view(80, 80)
    large[0, 1] = float("-inf")
    numbers = {"a": {"scores": large, "small": torch.eye(3), "by_offset": torch.ones(3), "n": 7}}
    write_numbers(tmp_path / "mini.json", numbers)
    found = read_numbers(tmp_path / "mini.json")["a"]
    assert found["scores"][0, 1].isnan() and found["scores"][40, 40].item() == pytest.approx(
        large[40, 40].item(), abs=1e-4
    )
    assert torch.equal(found["small"], torch.eye(3).double())
    assert (found["by_offset"], found["n"]) == ([1.0, 1.0, 1.0], 7)
