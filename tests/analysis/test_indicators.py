"""The indicators of the BERT paper's Appendix B: their ideal cases, and plain double loops."""

import math
import random
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.analysis.indicators import (
    direction_balance,
    measure,
    monotonicity,
    symmetry,
    translation_invariance,
)

lengths = st.integers(2, 12)
seeds = st.integers(0, 2**31 - 1)


def positive(length: int, seed: int) -> Tensor:
    """Weights (T, T) whose rows sum to 1, none twice."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(length, length, generator=generator, dtype=torch.float64)
    return logits.softmax(1)


def by_offset(length: int, values: Tensor) -> Tensor:
    """The Toeplitz matrix (T, T) with values (2T - 1,) from the offset 1 - T on."""
    positions = torch.arange(length)
    return values[positions - positions.unsqueeze(1) + length - 1]


def naive_monotonicity(a: list[list[float]], first: int | None) -> float:
    total = elements = 0.0
    for i in range(len(a)):
        forward = [a[i][j] for j in range(i, len(a))][:first]
        backward = [a[i][j] for j in range(i, -1, -1)][:first]
        for s in (forward, backward):
            n = len(s)
            if n == 1:
                continue
            ratio = sum(
                (s[x] - s[y]) * (x - y) > 0 for x in range(n) for y in range(n) if x != y
            ) / (n**2 - n)
            total, elements = total + ratio * n, elements + n
    return total / elements


def naive_translation_invariance(a: list[list[float]]) -> float:
    n, total = len(a), 0.0
    for offset in range(-n + 1, n):
        group = [a[i][j] for i in range(n) for j in range(n) if j - i == offset]
        total += statistics.pvariance(group) * len(group)
    return total / n**2 / statistics.pvariance([x for row in a for x in row])


def naive_symmetry(a: list[list[float]]) -> float:
    n = len(a)
    differences = [abs(a[i][j] - a[j][i]) for i in range(n) for j in range(n) if i < j]
    return sum(differences) / (n * (n - 1) / 2)


def naive_direction_balance(a: list[list[float]], offsets: int) -> float:
    n = len(a)
    near = [(i, j) for i in range(n) for j in range(n) if abs(i - j) <= offsets]
    return sum(a[i][j] for i, j in near if j < i) / sum(a[i][j] for i, j in near if j > i)


@given(lengths, seeds, st.integers(2, 14))
def test_agree_with_double_loops(length: int, seed: int, some: int) -> None:
    weights = positive(length, seed)
    a = weights.tolist()
    for first in (None, some):
        assert monotonicity(weights, first) == pytest.approx(naive_monotonicity(a, first))
    expected = naive_translation_invariance(a)
    assert translation_invariance(weights) == pytest.approx(expected)
    assert symmetry(weights) == pytest.approx(naive_symmetry(a))
    assert direction_balance(weights, some) == pytest.approx(naive_direction_balance(a, some))


@given(lengths, seeds)
def test_one_weight_per_offset_is_translation_invariant(length: int, seed: int) -> None:
    values = torch.rand(2 * length - 1, generator=torch.Generator().manual_seed(seed)).double()
    weights = by_offset(length, values)
    assert translation_invariance(weights) == pytest.approx(0, abs=1e-12)


@given(lengths, seeds)
def test_within_offsets_there_is_no_more_variance_than_in_all(length: int, seed: int) -> None:
    assert 0 <= translation_invariance(positive(length, seed)) <= 1 + 1e-12


@given(lengths, seeds)
def test_a_symmetric_matrix_is_symmetric_and_balanced(length: int, seed: int) -> None:
    weights = positive(length, seed)
    weights = weights + weights.T
    assert symmetry(weights) == 0
    assert direction_balance(weights) == pytest.approx(1)


@given(lengths, seeds, st.integers(2, 14))
def test_falling_and_growing_with_the_distance(length: int, seed: int, first: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    steps = 0.01 + torch.rand(length, length, generator=generator, dtype=torch.float64)
    positions = torch.arange(length)
    distance = (positions - positions.unsqueeze(1)).abs()
    falling = torch.stack([-s.cumsum(0)[d] for s, d in zip(steps, distance, strict=True)]).exp()
    assert monotonicity(falling) == monotonicity(falling, first) == 0
    assert monotonicity(1 / falling) == monotonicity(1 / falling, first) == pytest.approx(1)


@given(lengths, seeds)
def test_opposite_orders_add_up(length: int, seed: int) -> None:
    weights = positive(length, seed)
    assert monotonicity(weights) + monotonicity(-weights) == pytest.approx(1)


@given(lengths, seeds)
def test_transposing_turns_the_balance_around(length: int, seed: int) -> None:
    weights = positive(length, seed)
    assert direction_balance(weights) * direction_balance(weights.T) == pytest.approx(1)
    assert symmetry(weights) == pytest.approx(symmetry(weights.T))


def test_random_order_is_half_monotone_and_not_invariant() -> None:
    weights = positive(120, 1)
    assert monotonicity(weights) == pytest.approx(0.5, abs=0.02)
    assert monotonicity(weights, 20) == pytest.approx(0.5, abs=0.02)
    assert translation_invariance(weights) == pytest.approx(1, abs=0.03)
    assert direction_balance(weights) == pytest.approx(1, abs=0.05)


def test_more_weight_on_what_precedes_is_above_one() -> None:
    """As Table 2 says and the printed formula does not."""
    backward = torch.ones(4, 4, dtype=torch.float64).tril() + 0.5
    assert direction_balance(backward) > 1
    assert direction_balance(torch.eye(4) + torch.ones(4, 4).tril()) == math.inf


@given(st.integers(4, 12))
def test_equal_weights_but_for_their_last_digits(length: int) -> None:
    """Without positions all words weigh the same: in order, and without a variance to divide by."""
    noise = random.Random(length)
    rows = [[0.1 + noise.uniform(-1e-15, 1e-15) for _ in range(length)] for _ in range(length)]
    weights = torch.tensor(rows, dtype=torch.float64)
    assert monotonicity(weights) == 0
    assert math.isnan(translation_invariance(weights))
    found = measure(weights)
    assert found["translation_invariance"] is None
    assert found["direction_balance"] == pytest.approx(1)


def test_special_tokens_are_left_out_where_it_says_so() -> None:
    inner = by_offset(6, torch.rand(11).double())
    weights = torch.full((8, 8), 3.0, dtype=torch.float64)
    weights[1:-1, 1:-1] = inner
    found = measure(weights)
    assert found["translation_invariance_words"] == pytest.approx(0, abs=1e-12)
    assert found["translation_invariance"] is not None and found["translation_invariance"] > 0.1


@pytest.mark.parametrize("shape", [(3,), (3, 4), (0, 0), (2, 3, 3)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    for indicator in (monotonicity, translation_invariance, symmetry, direction_balance):
        with pytest.raises(ValueError, match=r"`weights` must be \(T, T\), but is"):
            indicator(torch.ones(shape))


def test_one_element_has_no_order() -> None:
    with pytest.raises(ValueError, match="`first` must be at least 2, but is 1"):
        monotonicity(torch.eye(3), 1)
