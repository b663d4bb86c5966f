"""A check of result files that does not import the libraries of their schema."""

import math
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder
from fairseq_plugins.records.recipe_files import read_content
from fairseq_plugins.records.runs import Run, Study

_CELL = {"table": str, "scale": str, "row": str, "attention": str, "seed": int}
_TABLES = ("metrics", "config", "data", "versions", "hardware")


def fault_of(path: Path) -> str:
    """Say what is wrong with the file of a result; empty if nothing is.

    It must be complete JSON of the run that its path names, with finite metrics.

    Args:
        path: <results>/<table>/<scale or study>/<row>-<attention>-s<seed>.json.
    """
    try:
        found = read_content(path)
    except (OSError, ValueError, RecursionError) as error:
        return f"it cannot be read ({error})"
    if not isinstance(found, dict):
        return "it is no table of JSON"
    wrong = [key for key, kind in _CELL.items() if type(found.get(key)) is not kind]
    wrong += [key for key in _TABLES if not isinstance(found.get(key), dict) or not found[key]]
    if wrong:
        return f"it has no {wrong[0]}, or another kind of it"
    if not _is_finite(found["metrics"]):
        return "its metrics are not all finite"
    try:
        study = Study.read(found.get("study"))
        own = Run(**{key: found[key] for key in _CELL}, study=study).result
    except (LookupError, TypeError, AttributeError):
        return "its study is damaged"
    if own.parts[-3:] != path.parts[-3:]:
        return f"it is the result {root_folder('results').name}/{'/'.join(own.parts[-3:])}"
    return ""


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
