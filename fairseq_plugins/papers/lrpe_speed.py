"""Table 9 of "Linearized Relative Positional Encoding": training speed against Base.

The paper does not say which type its row LRPE is; its number is shown for each type.
"""

LRPE = tuple(f"lrpe_type{i}" for i in range(1, 9))
LABELS = {
    "base": "Base",
    "rope": "RoPE",
    "spe": "SPE",
    "per": "PER",
    "t5": "T5",
    "alibi": "ALiBi",
    "xl": "XL",
    "none": "no position",
    **{row: f"LRPE, type {row[-1]}" for row in LRPE},
}
# By attention.
SPEEDS: dict[str, dict[str, float]] = {
    "linear": {"base": 1.0, "rope": 0.97, "spe": 0.42, "per": 0.88, **dict.fromkeys(LRPE, 0.95)},
    "vanilla": {"base": 1.0, "rope": 0.95, "spe": 0.41, "t5": 0.70, **dict.fromkeys(LRPE, 0.91)},
}
