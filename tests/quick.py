"""Which of many alike cases run where time is short; the others are marked `slow`."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def first_of_each_kind(
    cases: Iterable[Any], kind: Callable[[Any], Hashable], name: Callable[[Any], str]
) -> list[Any]:
    """Parameters with these names, of which each kind's first one is quick."""
    seen: set[Hashable] = set()
    found = []
    for case in cases:
        marks = [pytest.mark.slow] if kind(case) in seen else []
        found.append(pytest.param(case, id=name(case), marks=marks))
        seen.add(kind(case))
    return found
