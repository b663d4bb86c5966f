"""Figure of a checkpoint's losses at multiples of its training length."""

import math
from collections.abc import Mapping
from typing import Any

from fairseq_plugins.analysis.figure_files import draw_lines
from fairseq_plugins.common.errors import NoNumberError

UNIT = "loss, bits per token"
WINDOWS = {"bits": "whole windows", "sliding_bits": "sliding windows"}


def draw_losses(found: Mapping[str, Any]) -> Any:
    """Draw the losses by length, and by position at each length.

    found: result of `evaluation.beyond_training.measure`.

    Raises:
        NoNumberError: no length has a number.
    """
    measured = {factor: one for factor, one in found["lengths"].items() if "bits" in one}
    if not measured:
        raise NoNumberError("no length has a number to draw")
    by_length: dict[str, Any] = {}
    for key, name in WINDOWS.items():
        points = [(one["length"], one[key]) for one in measured.values() if key in one]
        if points:
            by_length[name] = tuple(zip(*points, strict=True))
    by_position = {}
    for factor, one in measured.items():
        losses = [math.nan if loss is None else loss for loss in one["by_position"]]
        width = one["length"] / len(losses)
        by_position[f"{factor}: {one['length']}"] = (
            [width * (i + 0.5) for i in range(len(losses))],
            losses,
        )
    return draw_lines(
        [
            ("by length", "tokens of a window", UNIT, by_length),
            ("by position, whole windows", "position in the window", UNIT, by_position),
        ]
    )
