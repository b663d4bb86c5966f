"""The figure of losses beyond the training length: its lines are the numbers of the JSON."""

import math

import pytest

from fairseq_plugins.analysis.extrapolation_figure import draw_losses
from fairseq_plugins.common.errors import NoNumberError

CAUSAL = {
    "1x": {"length": 8, "bits": 2.0, "sliding_bits": 1.5, "by_position": [3.0, 2.0, 2.0, 1.0]},
    "2x": {"length": 16, "bits": 4.0, "sliding_bits": 3.5, "by_position": [4.0] * 8},
    "4x": {"length": 32, "reason": "no meaning"},
}


def test_the_lines_are_the_losses() -> None:
    by_length, by_position = draw_losses({"lengths": CAUSAL}).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in by_length.lines}
    assert lines == {
        "whole windows": [[8, 2.0], [16, 4.0]],
        "sliding windows": [[8, 1.5], [16, 3.5]],
    }
    first, second = by_position.lines
    assert first.get_xydata().tolist() == [[1, 3.0], [3, 2.0], [5, 2.0], [7, 1.0]]
    assert (second.get_label(), second.get_xdata()[-1]) == ("2x: 16", 15)


def test_a_masked_model_has_gaps_and_no_sliding_windows() -> None:
    masked = {"1x": {"length": 8, "bits": 2.0, "by_position": [None, 2.0, 2.0, 1.0]}}
    by_length, by_position = draw_losses({"lengths": masked}).axes
    assert [line.get_label() for line in by_length.lines] == ["whole windows"]
    assert math.isnan(by_position.lines[0].get_ydata()[0])


def test_reasons_are_no_lines() -> None:
    with pytest.raises(NoNumberError, match="no length has a number to draw"):
        draw_losses({"lengths": {"4x": CAUSAL["4x"]}})
