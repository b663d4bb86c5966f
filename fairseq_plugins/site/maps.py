"""Charts of a figure's JSON: matrices as heat maps, lists as lines."""

from collections.abc import Mapping
from typing import Any

from fairseq_plugins.common.matrices import is_packed, unpack
from fairseq_plugins.site import charts

LEAST = 8  # least length of a matrix or list
Panel = tuple[str, charts.Chart]

# Axes (columns, rows) of matrices by key, as in the figures of `analysis`.
_OF_MATRICES = {
    "dot_products": ("position", "position"),
    "cosines": ("offset", "offset"),
    "position_position": ("position of the key", "position of the query"),
    "scores": ("position of the key", "position of the query"),
    "weights": ("position of the key", "position of the query"),
}
# Axes (x, y) of lists by key.
_OF_LISTS = {
    "by_offset": ("offset", "mean dot product"),
    "scores_by_offset": ("offset", "mean score"),
    "neighbours": ("offset", "cosine with the next one"),
    "psi": ("offset", "psi"),
    "frequencies": ("pair of features", "frequency"),
}
_X_VALUES = ("offsets",)  # lists of x values of others
_SIGNED = ("by_offset", "scores_by_offset", "neighbours")  # offsets from the most negative on
_RELATIVE = "relative"  # in names of relative vectors


def maps(content: Mapping[str, Any], above: str = "") -> list[Panel]:
    """Make charts of all matrices and lists, with their names.

    Args:
        content: a figure's JSON, or a part of it.
        above: names of the enclosing parts.
    """
    panels: list[Panel] = []
    for key, value in content.items():
        name = f"{above}: {_words(key)}" if above else _words(key)
        if is_packed(value):
            panels.append((name, _map(key, unpack(value).tolist(), above)))
        elif isinstance(value, Mapping) and value and all(map(_is_list, value.values())):
            panels.append((name, _lines(key, value)))  # one chart for all lists
        elif isinstance(value, Mapping):
            panels += maps(value, f"{above}: {key}" if above else key)
        elif _is_matrix(value):
            panels.append((name, _map(key, value, above)))
        elif _is_list(value) and key not in _X_VALUES:
            panels.append((name, _lines(key, {_words(key): value})))
    return panels


def _map(key: str, matrix: list[list[float]], above: str) -> charts.Chart:
    x, y = _OF_MATRICES.get(key, ("column", "row"))
    if _RELATIVE in above:
        x, y = "offset", "offset"
    first = -(len(matrix) // 2) if x == "offset" else 0
    return charts.heat(matrix, x=x, y=y, first=first)


def _lines(key: str, found: Mapping[str, list[float]]) -> charts.Chart:
    x, y = _OF_LISTS.get(key, ("index", _words(key)))
    series = {
        name: list(enumerate(values, start=-(len(values) // 2) if key in _SIGNED else 0))
        for name, values in found.items()
    }
    return charts.lines(series, x=x, y=y, log_y=key == "frequencies")


def _words(key: str) -> str:
    return key.replace("_", " ")


def _is_matrix(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= LEAST
        and all(_is_list(row) and len(row) == len(value[0]) for row in value)
    )


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= LEAST
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
    )
