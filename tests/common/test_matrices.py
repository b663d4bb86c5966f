"""Packed matrices: what comes out is what went in, to four digits of the largest number."""

import json

import numpy as np
import pytest

from fairseq_plugins.common.matrices import LARGEST, NOTE, is_packed, pack, unpack


@pytest.mark.parametrize("scale", [1e-7, 1.0, 3e5])
def test_a_matrix_comes_back_with_what_is_missing(scale):
    matrix = np.random.default_rng(1).normal(size=(70, 60)) * scale
    matrix[3, 5], matrix[0, 0] = np.nan, np.inf
    packed = json.loads(json.dumps(pack(matrix)))
    assert is_packed(packed) and not is_packed({"shape": [1]}) and not is_packed([1])
    back, finite = unpack(packed), np.isfinite(matrix)
    assert (np.isnan(back) == ~finite).all()
    most = np.abs(matrix[finite]).max()
    assert np.abs(back - matrix)[finite].max() <= 0.51 * most / LARGEST


def test_zeros_and_nothing_can_be_packed():
    assert (unpack(pack(np.zeros((3, 2)))) == np.zeros((3, 2))).all()
    assert np.isnan(unpack(pack(np.full((3, 2), np.nan)))).all()


def test_the_note_says_how_it_is_read():
    matrix = np.arange(12.0).reshape(3, 4)
    code = NOTE.split(": ", 1)[1].partition(", where")[0]
    names = {name: __import__(name) for name in ("numpy", "zlib", "base64")}
    np.testing.assert_allclose(eval(code, names, pack(matrix)), matrix, atol=1e-3)
