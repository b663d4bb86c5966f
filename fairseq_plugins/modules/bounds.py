"""Range checks of a model's numeric options, before anything is built."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf.errors import InterpolationKeyError

from fairseq_plugins.common.errors import OptionError

_SHARES = ("dropout", "layerdrop", "quant_noise_pq", "quant_noise_scalar")  # from 0 to 1
_SIZES = ("_heads", "_dim", "_positions", "tokens_per_sample")  # at least 1
_LARGEST = 2**31 - 1  # of sizes and counts
_LAYERS = ("encoder_layers", "decoder_layers")  # at least 1
_COUNTS = ("_layers", "min_positions")  # at least 0


def check_numbers(config: Any, model: str, fixed: Mapping[str, Any] | None = None) -> None:
    """Check that numeric options are in their ranges, and that fixed options are unchanged.

    Args:
        config: options of the model to build.
        model: registered name of the model.
        fixed: the only supported value of some options, by name; None counts as unset.

    Raises:
        OptionError: naming the option, its bounds and its value.
    """
    for name, only in (fixed or {}).items():
        if (value := getattr(config, name, only)) not in (only, None):
            raise OptionError(f"`{name}` must be {only} in {model}, but is {value!r} instead.")
    for option in fields(MODEL_DATACLASS_REGISTRY[model]):
        try:
            value = getattr(config, option.name, None)
        except InterpolationKeyError:  # refers to a config section that is absent
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        lowest, highest = _bounds(option.name)
        if value == 0 and option.default is None:  # 0 means unset
            continue
        if not (math.isfinite(value) and lowest <= value <= highest):
            unbounded = lowest == -math.inf
            bounds = "a finite number" if unbounded else f"from {lowest} to {highest}"
            raise OptionError(f"`{option.name}` must be {bounds}, but is {value} instead.")


def _bounds(name: str) -> tuple[float, float]:
    if name.endswith(_SHARES):
        return 0, 1
    if name.endswith(_COUNTS) and name not in _LAYERS:
        return 0, _LARGEST
    return (1, _LARGEST) if name in _LAYERS or name.endswith(_SIZES) else (-math.inf, math.inf)
