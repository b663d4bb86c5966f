"""Comparison of Figure 5's correlations with what the BERT paper observed."""

from collections.abc import Mapping
from typing import Any

from fairseq_plugins.analysis.pair_measures import NEAR
from fairseq_plugins.analysis.sentences import sentences, summarise

Numbers = Mapping[str, Any]

# Figure 5: offsets at which monotonicity correlates with span tasks, and the least correlations of
# monotonicity and of direction balance.
SPAN_OFFSETS, CLOSELY, BALANCED = (20, 55), 0.9, 0.5
_SPAN_TASKS, _OPPOSITE = ("v1_exact", "v2_exact"), "SST-2"


def check_ranges(numbers: Numbers) -> str:
    """Check Figure 5: the offsets within which properties correlate with tasks."""
    first, last = SPAN_OFFSETS
    middle = {
        task: found
        for task in (*_SPAN_TASKS, _OPPOSITE)
        if (found := _within(numbers, f"monotonicity, {task}", first, last))
    }
    means = {task: sum(found) / len(found) for task, found in middle.items()}
    opposite = means.pop(_OPPOSITE, None)
    balance = {}
    for key in numbers:
        name, _, task = key.partition(", ")
        if name == "direction balance" and (near := _within(numbers, key, 1, NEAR)):
            most, far = max(near), _within(numbers, key, 1, max(numbers["reaches"]))[-1]
            balance[task] = (most > max(BALANCED, far), f"{most:+.2f}, {far:+.2f}")
    return sentences(
        summarise(
            f"Monotonicity within {first} to {last} offsets correlates with span prediction by "
            f"less than {-CLOSELY} (the least in that range)",
            {task: (min(middle[task]) < -CLOSELY, f"{min(middle[task]):+.2f}") for task in means},
        ),
        ""
        if opposite is None
        else summarise(
            f"There `{_OPPOSITE}` correlates the other way round (mean {opposite:+.2f}) from span "
            "prediction (mean)",
            {task: (own < 0 < opposite, f"{own:+.2f}") for task, own in means.items()},
        ),
        summarise(
            f"Direction balance correlates by more than {BALANCED} within few offsets, and less "
            f"within all (the most within 1 to {NEAR} offsets, and within all)",
            balance,
        ),
    )


def _within(numbers: Numbers, key: str, first: int, last: int) -> list[float]:
    """Return the defined correlations of a property with a task within `first` to `last`."""
    return [
        value
        for reach, value in zip(numbers["reaches"], numbers.get(key, ()), strict=False)
        if first <= reach <= last and value is not None
    ]
