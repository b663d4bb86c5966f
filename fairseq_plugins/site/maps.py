"""Charts of a figure's JSON: its matrices as maps, its lists of numbers as lines."""

from collections.abc import Mapping
from typing import Any

from fairseq_plugins.site import charts

LEAST = 8  # from how many rows on a list of lists is a map
Panel = tuple[str, charts.Chart]

# By the key of a matrix what its columns and rows are, as the figures of `analysis` call it.
_OF_MATRICES = {
    "dot_products": ("position", "position"),
    "cosines": ("offset", "offset"),
    "position_position": ("position of the key", "position of the query"),
    "scores": ("position of the key", "position of the query"),
    "weights": ("position of the key", "position of the query"),
}
# By the key of a list what its places and numbers are.
_OF_LISTS = {
    "by_offset": ("offset", "mean dot product"),
    "scores_by_offset": ("offset", "mean score"),
    "neighbours": ("offset", "cosine with the next one"),
    "psi": ("offset", "psi"),
    "frequencies": ("pair of features", "frequency"),
}
_PLACES = ("offsets",)  # lists that are the places of the others
_SIGNED = ("by_offset", "scores_by_offset", "neighbours")  # offsets from the most negative one on
_RELATIVE = "relative"  # in the name of what has a vector for each offset


def maps(content: Mapping[str, Any], above: str = "") -> list[Panel]:
    """Matrices and lists of numbers, each under its name.

    Args:
        content: a figure's JSON, or a part of it.
        above: the names of what the part is in.
    """
    panels: list[Panel] = []
    for key, value in content.items():
        name = f"{above}: {_words(key)}" if above else _words(key)
        if isinstance(value, Mapping) and value and all(map(_is_list, value.values())):
            panels.append((name, _lines(key, value)))  # one chart for all of a kind
        elif isinstance(value, Mapping):
            panels += maps(value, f"{above}: {key}" if above else key)
        elif _is_matrix(value):
            panels.append((name, _map(key, value, above)))
        elif _is_list(value) and key not in _PLACES:
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
