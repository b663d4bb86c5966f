"""Choose which of many similar cases run."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


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


def with_choices(
    cases: Iterable[Case], choices: Sequence[Any], kind: Callable[[Case], Hashable]
) -> list[tuple[Case, Any]]:
    """Pair every case with the first choice, and the first case of each kind with the others too.

    For further shapes, dtypes or options that act on a mechanism which many cases share.
    """
    seen: set[Hashable] = set()
    found = []
    for case in cases:
        of_case = choices[:1] if kind(case) in seen else choices
        found += [(case, choice) for choice in of_case]
        seen.add(kind(case))
    return found
