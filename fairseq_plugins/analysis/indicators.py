"""Indicators of the BERT paper's properties in attention weights, numbers of one matrix.

"On Position Embeddings in BERT" (Wang et al. 2021), Appendix B.

In all functions `weights` is (T, S) with T = S, float64: row i holds the weights, after the
softmax, with which query i attends to each key. The offset of a pair is key minus query, and the
smaller an indicator the better its property is met; direction balance is met at 1.

Weights that are closer than `ROUNDING` of the largest one count as equal. A model without positions
gives all words one weight, and without this what is measured would be its last digits.
"""

import math

from torch import Tensor

NEAR = 20  # offsets of the direction balance, elements of the monotonicity "first 20 offsets"
ROUNDING = 1e-9


def monotonicity(weights: Tensor, first: int | None = None) -> float:
    """Ordered Pair Ratio (Appendix B): the share of pairs whose key further away weighs more.

    0 where weights fall with the distance on both sides of every query, 1 where they grow, 0.5
    where they are in random order. Each query has a sequence of keys from itself to the end and
    one to the beginning, each counted with its number of elements. As the paper's formula has it,
    a pair of equal weights is in order. A sequence of one element has no pair and is left out.

    weights: (T, T). first: only so many elements of each sequence, the query's own among them.

    Raises:
        ValueError: a `first` under 2, or a matrix that is not square.
    """
    length = _length(weights)
    if first is not None and first < 2:
        raise ValueError(f"`first` must be at least 2, but is {first} instead.")
    smallest = _rounding(weights)
    total = elements = 0.0
    for i, row in enumerate(weights):
        for sequence in (row[i:][:first], row[: i + 1].flip(0)[:first]):
            count = len(sequence)
            if count < 2:
                continue
            growth = sequence.unsqueeze(0) - sequence.unsqueeze(1)  # [nearer, further]
            out_of_order = int((growth > smallest).triu(1).sum())
            total += count * out_of_order / (count * (count - 1) / 2)
            elements += count
    assert elements or length == 1
    return total / elements if elements else 0.0


def translation_invariance(weights: Tensor) -> float:
    """Average In-group Variance (Appendix B): of weights at one offset, over that of all weights.

    0 where each offset has one weight. Not a number where all weights are the same: both
    variances are 0 then.

    weights: (T, T).
    """
    length = _length(weights)
    overall = float(weights.var(correction=0))
    if overall <= _rounding(weights) ** 2:
        return math.nan
    groups = (weights.diagonal(offset) for offset in range(1 - length, length))
    within = sum(float(group.var(correction=0)) * len(group) for group in groups)
    return within / length**2 / overall


def symmetry(weights: Tensor) -> float:
    """Symmetrical Discrepancy (Appendix B): the mean of |A_ij - A_ji| over pairs of positions.

    weights: (T, T).
    """
    length = _length(weights)
    pairs = length * (length - 1) / 2
    return float((weights - weights.T).abs().triu(1).sum()) / pairs if pairs else 0.0


def direction_balance(weights: Tensor, offsets: int | None = NEAR) -> float:
    """The weight of preceding keys over that of succeeding ones, at most `offsets` away.

    Above 1 where queries attend more to what precedes them. The formula printed in Appendix B is
    this one upside down: the text around it and Table 2's say lower over upper triangle.
    Infinite where nothing that succeeds is attended to, as in a causal model.

    weights: (T, T). offsets: None for all.
    """
    length = _length(weights)
    reach = length if offsets is None else offsets
    before = float(weights.tril(-1).triu(-reach).sum())
    after = float(weights.triu(1).tril(reach).sum())
    if after == 0:
        return math.inf if before else math.nan
    return before / after


def measure(weights: Tensor, begins: int = 1, ends: int = 1) -> dict[str, float | None]:
    """The columns of Table 2, and of Table 7 for other models than BERT.

    One that is not defined is None, and so is one that is infinite (`infinite` says which).

    The paper leaves open what becomes of the rows without [CLS] and [SEP]: they are not made to
    sum to 1 again.

    Args:
        weights: (T, T).
        begins: special tokens in front of the words.
        ends: special tokens behind them.
    """
    found = _measure(weights, begins, ends)
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def infinite(weights: Tensor) -> list[str]:
    """The columns that are infinite: the direction balance of a causal model, as in Table 7.

    weights: (T, T).
    """
    return [name for name, value in _measure(weights, 0, 0).items() if math.isinf(value)]


def _measure(weights: Tensor, begins: int, ends: int) -> dict[str, float]:
    words = slice(begins, len(weights) - ends)
    return {
        "monotonicity": monotonicity(weights),
        f"monotonicity_{NEAR}": monotonicity(weights, NEAR),
        "translation_invariance": translation_invariance(weights),
        "translation_invariance_words": translation_invariance(weights[words, words]),
        "symmetry": symmetry(weights),
        "direction_balance": direction_balance(weights),
    }


def _length(weights: Tensor) -> int:
    """T of a matrix (T, T)."""
    if weights.dim() != 2 or weights.size(0) != weights.size(1) or not len(weights):
        raise ValueError(f"`weights` must be (T, T), but is {tuple(weights.shape)} instead.")
    return len(weights)


def _rounding(weights: Tensor) -> float:
    """Differences up to this are none."""
    return ROUNDING * float(weights.abs().max())
