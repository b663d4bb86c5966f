"""Indicators of the BERT paper's properties of attention weights.

"On Position Embeddings in BERT" (Wang et al. 2021), Appendix B.

In all functions `weights` is (T, T), float64: row i holds the weights, after the softmax, of query
i. The offset of a pair is key minus query. A smaller indicator means that its property holds more
strongly; direction balance is best at 1.

Weights that differ by less than `ROUNDING` of the largest count as equal: those of a model without
positions differ by rounding alone.
"""

import math

from torch import Tensor

NEAR = 20  # offsets of the direction balance, elements of the monotonicity "first 20 offsets"
ROUNDING = 1e-9


def monotonicity(weights: Tensor, first: int | None = None) -> float:
    """Compute the Ordered Pair Ratio (Appendix B): pairs whose more distant key weighs more.

    0 where weights fall with the distance on both sides of every query, 1 where they grow, 0.5
    in random order. Each query has a sequence of keys from itself to the end and one to the
    beginning, each weighted by its number of elements; sequences of one element are left out. As
    in the paper's formula, a pair of equal weights is in order.

    weights: (T, T). first: use only so many elements of each sequence, the query's own included.

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
    """Compute the Average In-group Variance (Appendix B): variance within offsets over the total.

    0 where all pairs of an offset weigh the same; NaN where all weights are equal.
    """
    length = _length(weights)
    overall = float(weights.var(correction=0))
    if overall <= _rounding(weights) ** 2:
        return math.nan
    groups = (weights.diagonal(offset) for offset in range(1 - length, length))
    within = sum(float(group.var(correction=0)) * len(group) for group in groups)
    return within / length**2 / overall


def symmetry(weights: Tensor) -> float:
    """Compute the Symmetrical Discrepancy (Appendix B): the mean of |A_ij - A_ji| over pairs."""
    length = _length(weights)
    pairs = length * (length - 1) / 2
    return float((weights - weights.T).abs().triu(1).sum()) / pairs if pairs else 0.0


def direction_balance(weights: Tensor, offsets: int = NEAR) -> float:
    """Compute the weight of preceding keys over that of following ones, at most `offsets` away.

    Above 1 where queries attend more to preceding keys, infinite in a causal model. The formula
    printed in Appendix B is the inverse, but its text and Table 2's say lower over upper triangle.
    """
    _length(weights)
    before = float(weights.tril(-1).triu(-offsets).sum())
    after = float(weights.triu(1).tril(offsets).sum())
    if after == 0:
        return math.inf if before else math.nan
    return before / after


def measure(weights: Tensor, num_bos: int = 1, num_eos: int = 1) -> dict[str, float | None]:
    """Compute the columns of Table 2, and of Table 7 for other models than BERT.

    Undefined and infinite values are None (`infinite` lists the latter). Where [CLS] and [SEP] are
    left out, rows are not normalised again; the paper does not say.

    Args:
        weights: (T, T).
        num_bos: special tokens before the words.
        num_eos: special tokens after the words.
    """
    words = slice(num_bos, len(weights) - num_eos)
    found = {
        "monotonicity": monotonicity(weights),
        f"monotonicity_{NEAR}": monotonicity(weights, NEAR),
        "translation_invariance": translation_invariance(weights),
        "translation_invariance_words": translation_invariance(weights[words, words]),
        "symmetry": symmetry(weights),
        "direction_balance": direction_balance(weights),
    }
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def measure_by_offset(weights: Tensor) -> dict[str, list[float | None]]:
    """Compute the indicators of Figure 5 for growing ranges of offsets.

    Args:
        weights: (T, T).

    Returns:
        ``offsets``, the largest offset of each range; and for each of them ``monotonicity`` and
        ``direction_balance``, None where it is undefined or infinite.
    """
    length = _length(weights)
    offsets = sorted({*range(1, min(NEAR, length)), *range(NEAR, length, 4), length - 1})
    ratios = (direction_balance(weights, offset) for offset in offsets)
    return {
        "offsets": [*offsets],
        "monotonicity": [monotonicity(weights, offset + 1) for offset in offsets],
        "direction_balance": [ratio if math.isfinite(ratio) else None for ratio in ratios],
    }


def infinite(weights: Tensor) -> list[str]:
    """List the infinite columns: the direction balance of a causal model, as in Table 7."""
    return ["direction_balance"] if math.isinf(direction_balance(weights)) else []


def _length(weights: Tensor) -> int:
    """Return T of a matrix (T, T), checked to be square."""
    if weights.dim() != 2 or weights.size(0) != weights.size(1) or not len(weights):
        raise ValueError(f"`weights` must be (T, T), but is {tuple(weights.shape)} instead.")
    return len(weights)


def _rounding(weights: Tensor) -> float:
    """Return the difference up to which weights count as equal."""
    return ROUNDING * float(weights.abs().max())
