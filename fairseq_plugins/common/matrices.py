"""Large matrices in JSON: rounded to multiples of a unit, as compressed text.

A list of lists would take three to seven times as much.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

LEAST = 4096  # entries from which a matrix is packed
LARGEST = 9999  # units of the largest number, four digits
_MISSING = -(2**15)  # for NaN and infinities
_KEYS = {"shape", "unit", "int16"}
NOTE = (
    "Matrices are rounded to multiples of their unit, a 9999th of the largest number: unit * "
    "numpy.frombuffer(zlib.decompress(base64.b64decode(int16)), '<i2').reshape(shape), where "
    "-32768 is no number."
)


def pack(matrix: np.ndarray) -> dict[str, Any]:
    """Pack a matrix (N, M): see `NOTE`."""
    finite = np.isfinite(matrix)
    unit = float(f"{np.abs(matrix[finite]).max(initial=0.0) / LARGEST:.6g}") or 1.0
    units = np.where(finite, np.rint(np.where(finite, matrix, 0.0) / unit), _MISSING)
    text = base64.b64encode(zlib.compress(units.astype("<i2").tobytes(), 9)).decode()
    return {"shape": list(matrix.shape), "unit": unit, "int16": text}


def is_packed(value: Any) -> bool:
    """Return whether a value of a JSON is a packed matrix."""
    return isinstance(value, Mapping) and value.keys() == _KEYS


def unpack(value: Mapping[str, Any]) -> np.ndarray:
    """Return a packed matrix (N, M), with NaN for numbers that are not finite."""
    units = np.frombuffer(zlib.decompress(base64.b64decode(value["int16"])), "<i2")
    return np.where(units == _MISSING, np.nan, units * value["unit"]).reshape(value["shape"])
