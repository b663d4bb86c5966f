"""Whether what the BERT paper saw in a figure is in our numbers, where these decide it.

Each function named `of_...` takes the numbers of a figure, as they are in its JSON, and gives
sentences; "" where nothing that is shown decides anything.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.readers import KINDS, LM, ROBERTA, TRANSLATION
from fairseq_plugins.analysis.subjects import LEARNED, LEARNED_SINUSOIDS

Numbers = Mapping[str, Any]
Agrees = Callable[[Numbers], str]

NEAR = 5  # offsets that count as neighbours, those of the paper's Figure 1
ALIKE_BY = 25  # the paper: 20 to 25
_GAP = f"mean over pairs 1 to {NEAR} apart less that over pairs half the length apart and more"


def near_less_far(matrix: Tensor) -> float:
    """The mean over pairs 1 to 5 apart less that over pairs half the length and more: (T, T)."""
    length = len(matrix)
    places = torch.arange(length)
    distance = (places[:, None] - places).abs()
    near = matrix[(distance > 0) & (distance <= NEAR)].mean()
    return float(near - matrix[distance >= length // 2].mean())


def offset_share(matrix: Tensor) -> float:
    """The share of the variance off the diagonal that the offset explains, 0..1: (T, T).

    1 is translation invariance. It is 0 where all is the same.
    """
    length = len(matrix)
    lines = [matrix.diagonal(offset) for offset in range(1 - length, length) if offset]
    means = torch.cat([line.mean().expand_as(line) for line in lines])
    total = torch.cat(lines).var(correction=0)
    return float(means.var(correction=0) / total) if total > 0 else 0.0


def side_gap(cosines: Tensor) -> float:
    """Mean cosine of relative vectors of one side less that of both sides: (2k + 1, 2k + 1)."""
    reach = len(cosines) // 2
    before, after = slice(0, reach), slice(reach + 1, None)
    first, second = torch.triu_indices(reach, reach, 1)
    own = torch.cat([cosines[side, side][first, second] for side in (before, after)])
    return float(own.mean() - cosines[before, after].mean())


def of_absolute(numbers: Numbers) -> str:
    """Figure 1: whether neighbouring absolute vectors are closer than far ones."""
    gaps = {
        name: near_less_far(_tensor(one["dot_products"]))
        for name, one in numbers.items()
        if name.endswith("absolute")
    }
    return _said(f"Neighbouring absolute vectors are closer than far ones ({_GAP})", _signs(gaps))


def of_training(numbers: Numbers) -> str:
    """Figure 8: whether invariance and monotonicity emerge between the first panel and the last."""
    if len(numbers) < 2:
        return ""
    names = list(numbers)
    ends = [_tensor(numbers[name]["dot_products"]) for name in (names[0], names[-1])]
    parts = []
    for what, measure in (
        ("the share of the variance between positions that the offset explains", offset_share),
        (_GAP, near_less_far),
    ):
        first, last = (measure(matrix) for matrix in ends)
        word = "rises" if last > first else "does not rise"
        parts.append(f"{what} {word}, from {first:.3g} ({names[0]}) to {last:.3g} ({names[-1]})")
    return f"Translation invariance: {parts[0]}; local monotonicity: {parts[1]}."


def of_bands(numbers: Numbers) -> str:
    """Figures 2 and 11: whether the diagonal is a white band under the RPEs that it is said of."""
    bands = {name: one["band"] for name, one in numbers.items()}
    named = {
        name: band
        for name, band in bands.items()
        if numbers[name]["relative"] in (LEARNED, LEARNED_SINUSOIDS)
    }
    said = _said(
        "A white band under the learned RPE, the learnable sinusoidal RPE and combinations with "
        "them (below 0 in the table)",
        _signs(named, below=True),
    )
    others = [f"`{name}`" for name in bands if name not in named and bands[name] < 0]
    if said and others:
        said += f" Without these RPEs there is one, too, under {', '.join(others)}."
    return said


def of_frequencies(numbers: Numbers) -> str:
    """Figure 4: whether most learned frequencies are below the fixed ones."""
    every = {name: _tensor(values) for name, values in numbers["frequencies"].items()}
    shares = {
        name: float((values < every["default"]).double().mean())
        for name, values in every.items()
        if name != "default"
    }
    found = {name: (share > 0.5, f"{share:.0%}") for name, share in shares.items()}
    return _said("Learned frequencies are mostly below the fixed ones", found)


def of_relative(numbers: Numbers) -> str:
    """Figure 6: whether far vectors are alike, and those of one side more than those of two."""
    learned = {name: one for name, one in numbers.items() if one["relative"] == LEARNED}
    far = {
        name: (near is not None and near <= ALIKE_BY, "never" if near is None else f"from {near}")
        for name, near in ((name, one["alike_from"]) for name, one in learned.items())
    }
    gaps = {name: side_gap(_tensor(one["cosines"])) for name, one in learned.items()}
    sides = "Learned vectors of one side are more alike than those of two (mean cosines)"
    said = (
        _said(f"Learned vectors are alike from an offset of {ALIKE_BY} on at latest", far),
        _said(sides, _signs(gaps)),
    )
    return " ".join(filter(None, said))


def of_correspondence(numbers: Numbers) -> str:
    """Figure 9: whether near positions correspond more than far ones."""
    gaps = {name: near_less_far(_tensor(one["position_position"])) for name, one in numbers.items()}
    return _said(f"Awareness of distance ({_GAP})", _signs(gaps))


def of_families(numbers: Numbers) -> str:
    """Figure 10 and Table 7: what sets the three families apart."""
    by_kind: dict[str, Mapping[str, Any]] = {}
    for one in numbers.values():
        by_kind.setdefault(one["kind"], one["metrics"])
    causal = by_kind.pop(KINDS[LM], None)
    found: dict[str, tuple[bool, str]] = {}
    if causal is not None and by_kind:
        others = by_kind.values()
        for what, metric, is_least in (
            ("the language model is the most monotone", "monotonicity", True),
            ("the least translation invariant", "translation_invariance_words", False),
            ("the least symmetric", "symmetry", False),
        ):
            values = [one[metric] for one in (causal, *others)]
            best = min(values) if is_least else max(values)
            found[what] = (values[0] == best, "")
    for what, family, is_ahead in (
        ("the masked model looks more back", ROBERTA, False),
        ("the encoder of translation more ahead", TRANSLATION, True),
    ):
        balance = by_kind.get(KINDS[family], {}).get("direction_balance")
        if balance is not None:
            found[what] = (balance < 1 if is_ahead else balance > 1, f"{balance:.4f}")
    told = "; ".join(
        f"{what}: {'yes' if is_so else 'no'}{f' ({number})' if number else ''}"
        for what, (is_so, number) in found.items()
    )
    return f"{told[0].upper()}{told[1:]}." if told else ""


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def _signs(found: Mapping[str, float], *, below: bool = False) -> dict[str, tuple[bool, str]]:
    """Whether each number is above 0, or below, with the number."""
    return {
        name: (value < 0 if below else value > 0, f"{value:+.3g}") for name, value in found.items()
    }


def _said(what: str, found: Mapping[str, tuple[bool, str]]) -> str:
    """Of what something is so and of what it is not, with a number each."""
    if not found:
        return ""
    parts = []
    for wanted, word in ((True, "so"), (False, "not")):
        names = [
            f"`{name}` ({number})" for name, (is_so, number) in found.items() if is_so == wanted
        ]
        parts += [f"{word} for {', '.join(names)}"] if names else []
    return f"{what}: {'; '.join(parts)}."
