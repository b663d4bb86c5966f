"""What fairseq reads from NumPy is there with NumPy 2, too."""

from types import SimpleNamespace

import numpy as np

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.modules.numpy_compat import restore_numpy_compat


def test_a_missing_name_is_added_and_another_left() -> None:
    newer, older = SimpleNamespace(), SimpleNamespace(compat=SimpleNamespace(long="own"))
    restore_numpy_compat(newer)
    restore_numpy_compat(older)
    assert (newer.compat.long, older.compat.long) == (int, "own")
    assert np.vectorize(len, otypes=[np.compat.long])(["a", "bc"]).tolist() == [1, 2]
