"""Pictures of docs/concepts.md: orders of products, and Fourier series of positions."""

import math

import pytest
import torch

from fairseq_plugins.analysis import computation_picture, fourier_picture
from fairseq_plugins.analysis.computation_picture import LINEARISED, VANILLA
from fairseq_plugins.analysis.fourier_picture import DIMS, best_series, fit_error, frequencies


@pytest.mark.parametrize(
    ("product", "shape", "cost"), [(VANILLA, "n x n", "n² d"), (LINEARISED, "d x d", "n d²")]
)
def test_the_order_of_products_decides_the_cost(product, shape, cost):
    for one, other in zip(product.factors, product.factors[1:], strict=False):
        assert one.columns == other.rows
    assert (product.inner_shape(), product.cost()) == (shape, cost)


def test_both_orders_are_drawn():
    axes = computation_picture.draw().axes
    assert [axis.get_title() for axis in axes] == [VANILLA.title, LINEARISED.title]
    assert [len(axis.patches) for axis in axes] == [4, 4]


def test_a_series_of_its_own_frequencies_is_found():
    angular = frequencies("fourier", 8)
    at = torch.arange(128).double()
    target = 0.5 + torch.sin(angular[2] * at) - 2 * torch.cos(angular[0] * at)
    torch.testing.assert_close(best_series(angular, target), target)


def test_more_frequencies_come_nearer():
    errors = [fit_error("fourier", dim) for dim in DIMS]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-4
    assert all(mine < fit_error("fixed", dim) for dim, mine in zip(DIMS, errors, strict=True))


def test_the_picture_has_the_errors():
    left, right = fourier_picture.draw().axes
    assert len(left.lines) == 3
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["wanted"]
    assert all(panel.get_xlabel() and panel.get_ylabel() for panel in (left, right))
    for line, name in zip(right.lines, fourier_picture.SETS, strict=True):
        assert math.isclose(line.get_ydata()[-1], fit_error(name, DIMS[-1]))
