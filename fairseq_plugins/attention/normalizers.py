"""Normalizers of linear attention and the options of each."""

import math
from typing import Any, Literal, get_args

from fairseq_plugins.attention.output_norm import OUTPUT_NORMS, OutputNormKind

Normalizer = Literal["encoded", "plain", "none", "clamped", "output_norm"]
NORMALIZERS: tuple[Normalizer, ...] = get_args(Normalizer)
UNDIVIDED: tuple[Normalizer, ...] = ("none", "output_norm")  # without a denominator

# Without a bound, encoded denominators cross zero in training, with huge gradients.
MIN_COSINE = 0.2
EPSILON = 1e-6
NORMALIZER: Normalizer = "clamped"  # with which the LRPE paper's orderings come out
OUTPUT_NORM: OutputNormKind = "layer_norm"
_DEFAULTS: dict[str, dict[str, Any]] = {
    "encoded": {"min_cosine": MIN_COSINE},
    "plain": {"min_cosine": MIN_COSINE},
    "clamped": {"epsilon": EPSILON},
    "output_norm": {"output_norm": OUTPUT_NORM},
}


def complete_options(normalizer: Normalizer, **given: Any) -> dict[str, Any]:
    """Check the options of a normalizer, and add the defaults of those that are None.

    Args:
        normalizer: see ``LinearAttention``.
        given: ``min_cosine``, ``epsilon`` and ``output_norm``, as ``LinearAttention`` takes them.

    Returns:
        The options that the normalizer uses.

    Raises:
        ValueError: an unknown normalizer, a value out of range, or an option of another normalizer.
    """
    if normalizer not in NORMALIZERS:
        raise ValueError(f"`normalizer` must be one of {list(NORMALIZERS)}, but is {normalizer!r}.")
    options = defaults_of(normalizer)
    for name, value in given.items():
        if value is not None and name not in options:
            raise ValueError(
                f"`{name}` must be left out with normalizer={normalizer}, which does not use "
                f"it, but is {value} instead."
            )
    _check_values(**given)
    return options | {name: value for name, value in given.items() if value is not None}


def defaults_of(normalizer: str) -> dict[str, Any]:
    """Return the options of a normalizer with their defaults."""
    return dict(_DEFAULTS.get(normalizer, {}))


def _check_values(min_cosine: Any, epsilon: Any, output_norm: Any) -> None:
    if min_cosine is not None and not 0 <= min_cosine <= 1:
        raise ValueError(f"`min_cosine` must be between 0 and 1, but is {min_cosine} instead.")
    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"`epsilon` must be positive and finite, but is {epsilon} instead.")
    if output_norm is not None and output_norm not in OUTPUT_NORMS:
        raise ValueError(
            f"`output_norm` must be one of {list(OUTPUT_NORMS)}, but is {output_norm!r}."
        )
