"""Dot products, cosines and waves of position vectors."""

import torch

from fairseq_plugins.analysis.position_vectors import (
    alike_from,
    by_offset,
    closeness,
    cosines,
    dot_products,
    first_rise,
    waves,
)
from fairseq_plugins.encodings.frequencies import geometric, sinusoids

M = torch.arange(128)


def test_closeness_is_the_dot_product_of_sinusoids() -> None:
    """Eq. 6."""
    frequencies = geometric(384, 768)
    products = dot_products(sinusoids(M, frequencies))
    torch.testing.assert_close(products[5, 5:], closeness(frequencies, M[:123]))
    torch.testing.assert_close(by_offset(products)[127:], closeness(frequencies, M))
    assert waves(frequencies, M).shape == (384, 128)


def test_fixed_sinusoids_of_768_features_first_rise_at_44() -> None:
    """The paper says that they are monotone for 0 to 50, roughly."""
    assert first_rise(closeness(geometric(384, 768), M)) == 44
    assert first_rise(torch.tensor([3.0, 2.0, 2.0, 1.0])) is None
    assert first_rise(torch.tensor([3.0, 4.0])) == 1


def test_cosines_of_what_is_written_down() -> None:
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert cosines(vectors).tolist() == expected
    assert cosines(vectors).diagonal(1).tolist() == [1, 0, 0]


def test_from_which_offset_on_vectors_are_alike() -> None:
    """Appendix D: the far ones of a side are one vector, the near ones are their own."""
    vectors = torch.eye(21)
    vectors[16:] = vectors[20]  # offsets 6 to 10
    vectors[:3] = vectors[0]  # and -10 to -8
    assert alike_from(vectors) == 8
    vectors[:5] = vectors[0]
    assert alike_from(vectors) == 6
    assert alike_from(torch.eye(21)) is None
    assert alike_from(torch.ones(21, 2)) == 0
