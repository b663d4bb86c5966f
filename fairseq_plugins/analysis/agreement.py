"""Return whether what the BERT paper saw in a figure is in our numbers, where these decide it.

Each function named `of_...` takes the numbers of a figure, as they are in its JSON, and gives
sentences; "" where nothing that is shown decides anything.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.indicators import NEAR as MIDDLE
from fairseq_plugins.analysis.indicators import (
    direction_balance,
    monotonicity,
    translation_invariance,
)
from fairseq_plugins.analysis.position_vectors import ALIKE, first_rise
from fairseq_plugins.analysis.readers import KINDS, LM, ROBERTA, TRANSLATION
from fairseq_plugins.analysis.sentences import said, said_where, sentences, signs
from fairseq_plugins.analysis.subjects import FIXED_SINUSOIDS, LEARNED, LEARNED_SINUSOIDS
from fairseq_plugins.papers.bert_figures import CLASSES, SPANS

Numbers = Mapping[str, Any]
Agrees = Callable[[Numbers], str]

NEAR = 5  # offsets that count as neighbours, those of the paper's Figure 1
FAR = 20  # offsets of relative vectors beyond it are far, as in the paper's Figure 1
ALIKE_BY = 25  # the paper: 20 to 25
# What counts as met, of numbers from 0, met, to 1: of the variance that offsets leave, and of pairs
# out of order, which are 0.5 at random, and of what differs between the directions of a pair.
INVARIANT, ORDERED, SYMMETRIC = 0.5, 0.25, 0.25
UNEQUAL = 1.1  # a factor between two directions
# Figure 5: in which offsets monotonicity goes with spans and how closely, and direction balance.
SPAN_OFFSETS, CLOSELY, BALANCED = (20, 55), 0.9, 0.5
_SPAN_TASKS, _OPPOSITE = ("v1_exact", "v2_exact"), "SST-2"
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


def asymmetry(weights: Tensor) -> float:
    """Return what differs between the two directions of pairs, as a share of their weight: (T, T).

    0 where each pair has one weight, 1 where only one direction of each has any.
    """
    between = float(weights.sum() - weights.trace())
    return float((weights - weights.mT).abs().triu(1).sum()) / between if between else 0.0


def clearness(matrix: Tensor) -> float:
    """`near_less_far` in standard deviations over all pairs of two positions: (T, T)."""
    pairs = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
    return near_less_far(matrix) / float(pairs.std(correction=0))


def of_vectors(numbers: Numbers) -> str:
    """Figure 1: whether neighbours are closer, and which relative vectors are alike."""
    matrices = {name: _tensor(one["dot_products"]) for name, one in numbers.items()}
    own = {
        is_relative: {
            name: matrix
            for name, matrix in matrices.items()
            if name.endswith("relative") == is_relative
        }
        for is_relative in (False, True)
    }
    kinds = {name: one["vectors"] for name, one in numbers.items()}
    learned = {name: matrix for name, matrix in own[True].items() if kinds[name] == LEARNED}
    return sentences(
        said(
            f"Neighbouring absolute vectors are closer than far ones ({_GAP})",
            signs({name: near_less_far(matrix) for name, matrix in own[False].items()}),
        ),
        _clearest({n: clearness(matrix) for n, matrix in own[False].items()}, kinds),
        *_relative_sides(learned),
    )


def _clearest(found: Mapping[str, float], kinds: Mapping[str, str]) -> str:
    """Describe whether learnable sinusoids show it more clearly than learned tables."""
    own, learned, fixed = (
        {name: value for name, value in found.items() if kinds[name] == kind}
        for kind in (LEARNED_SINUSOIDS, LEARNED, FIXED_SINUSOIDS)
    )
    if not learned:
        return ""
    most = max(learned.values())
    beside = ""
    if fixed:
        beside = f"; of fixed sinusoids, which the paper's figure lacks, {max(fixed.values()):.3g}"
    return said(
        "More clearly under learnable sinusoids than learned vectors (the same in standard "
        f"deviations over all pairs; of learned vectors at most {most:.3g}{beside})",
        {name: (value > most, f"{value:.3g}") for name, value in own.items()},
    )


def _relative_sides(matrices: Mapping[str, Tensor]) -> tuple[str, str]:
    """Describe cosines of dot products (2k + 1, 2k + 1) at small offsets and at far ones."""
    apart, alike = {}, {}
    for name, matrix in matrices.items():
        sizes = matrix.diagonal().sqrt()
        offset = (torch.arange(len(matrix)) - len(matrix) // 2).abs()
        found, small, far = matrix / sizes / sizes[:, None], offset <= NEAR, offset > FAR
        among = found[far][:, far]
        own = float(among[~torch.eye(len(among), dtype=torch.bool)].mean())
        other = float(found[small][:, far].mean())
        apart[name] = (other < own, f"{other:.3g} against {own:.3g}")
        alike[name] = (own > ALIKE, f"{own:.3g}")
    return (
        said(
            f"Learned relative vectors of offsets up to {NEAR} are less like those beyond {FAR} "
            "than these are like each other (mean cosines)",
            apart,
        ),
        said(f"Learned relative vectors beyond {FAR} are alike (mean cosine above {ALIKE})", alike),
    )


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
    own = said(
        "A white band under the learned RPE, the learnable sinusoidal RPE and combinations with "
        "them (below 0 in the table)",
        signs(named, below=True),
    )
    others = [f"`{name}`" for name in bands if name not in named and bands[name] < 0]
    if own and others:
        own += f" Without these RPEs there is one, too, under {', '.join(others)}."
    return own


def of_identical_words(numbers: Numbers) -> str:
    """Figures 2 and 11: the three properties of weights, their balance, and the white band."""
    weights = {name: _tensor(one["weights"]) for name, one in numbers.items()}
    return sentences(
        said_where(
            "Translation invariance (share of the variance of weights that is within offsets, "
            f"below {INVARIANT})",
            {name: translation_invariance(own) for name, own in weights.items()},
            lambda value: value < INVARIANT,
        ),
        said_where(
            f"Local monotonicity (share of pairs within {MIDDLE} offsets whose further word weighs "
            f"more, below {ORDERED}; 0.5 in random order)",
            {name: monotonicity(own, MIDDLE) for name, own in weights.items()},
            lambda value: value < ORDERED,
        ),
        said_where(
            "Symmetry (what differs between the two directions of pairs, as a share of their "
            f"weight, below {SYMMETRIC})",
            {name: asymmetry(own) for name, own in weights.items()},
            lambda value: value < SYMMETRIC,
        ),
        _unequal(
            {name: direction_balance(own) for name, own in weights.items()},
            {name: one["relative"] for name, one in numbers.items()},
        ),
        of_bands(numbers),
    )


def _unequal(balances: Mapping[str, float], relative: Mapping[str, str]) -> str:
    """Return whether weights are unequal with learnable sinusoids, and less so with other RPEs."""
    others = [balances[n] for n, kind in relative.items() if kind not in ("", LEARNED_SINUSOIDS)]
    if not others:
        return ""
    most = max(others, key=_imbalance)
    least = max(_imbalance(most), math.log(UNEQUAL))
    return said(
        "Under the learnable sinusoidal RPE and combinations with it, weights back and ahead are "
        f"unequal, by more than a factor of {UNEQUAL} and more than under all other RPEs (those "
        f"back by those ahead, within {MIDDLE} offsets; of the others {most:.3f} is furthest "
        "from 1)",
        {
            name: (_imbalance(balances[name]) > least, f"{balances[name]:.3f}")
            for name, kind in relative.items()
            if kind == LEARNED_SINUSOIDS
        },
    )


def _imbalance(balance: float) -> float:
    """The same for a ratio and its inverse."""
    return abs(math.log(balance))


def of_frequencies(numbers: Numbers) -> str:
    """Figure 4: whether most learned frequencies are below the fixed ones, and what psi says."""
    every = {name: _tensor(values) for name, values in numbers["frequencies"].items()}
    psi = {name: _tensor(values) for name, values in numbers["psi"].items()}
    fixed = psi.pop("default")
    shares = {
        name: float((values < every["default"]).double().mean())
        for name, values in every.items()
        if name != "default"
    }
    far = slice(len(fixed) // 2, None)
    return sentences(
        said_where(
            "Learned frequencies are mostly below the fixed ones",
            shares,
            lambda share: share > 0.5,
            ".0%",
        ),
        said_where(
            "Far positions are closer than with fixed ones (mean of psi(m) / psi(0) over the "
            "further half of the offsets less that with fixed ones)",
            {name: float((own[far] - fixed[far]).mean()) for name, own in psi.items()},
            lambda more: more > 0,
            "+.3g",
        ),
        *_of_tasks(psi),
    )


def _of_tasks(psi: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Describe psi for spans and for classes; () without models of both."""
    spans, classes = (
        {name: own for name, own in psi.items() if name.startswith(label)}
        for label in (SPANS, CLASSES)
    )
    if not (spans and classes):
        return ()
    rises = {name: first_rise(own) or len(own) for name, own in {**spans, **classes}.items()}
    most = max(rises[name] for name in classes)
    distances = {
        name: [
            sum(float((own - tuned).abs().mean()) for tuned in side.values()) / len(side)
            for side in (classes, spans)
        ]
        for name, own in psi.items()
        if name not in {**spans, **classes}
    }
    return (
        said(
            "Models tuned for spans are monotone over more offsets than all that are tuned for "
            f"classes (where psi first rises; for classes at {most} at latest)",
            {name: (rises[name] > most, str(rises[name])) for name in spans},
        ),
        said(
            "Before tuning psi is more like that of classes than that of spans (mean distance from "
            "each)",
            {
                name: (near < far, f"{near:.3g} against {far:.3g}")
                for name, (near, far) in distances.items()
            },
        ),
    )


def of_ranges(numbers: Numbers) -> str:
    """Figure 5: in which ranges of offsets properties correlate with what tasks."""
    first, last = SPAN_OFFSETS
    middle = {
        task: found
        for task in (*_SPAN_TASKS, _OPPOSITE)
        if (found := _within(numbers, f"monotonicity, {task}", first, last))
    }
    means = {task: sum(found) / len(found) for task, found in middle.items()}
    opposite = means.pop(_OPPOSITE, None)
    balance = {}
    for key in numbers:
        name, _, task = key.partition(", ")
        if name == "direction balance" and (near := _within(numbers, key, 1, NEAR)):
            most, far = max(near), _within(numbers, key, 1, max(numbers["reaches"]))[-1]
            balance[task] = (most > max(BALANCED, far), f"{most:+.2f}, {far:+.2f}")
    return sentences(
        said(
            f"Monotonicity within {first} to {last} offsets correlates with span prediction by "
            f"less than {-CLOSELY} (the least in that range)",
            {task: (min(middle[task]) < -CLOSELY, f"{min(middle[task]):+.2f}") for task in means},
        ),
        ""
        if opposite is None
        else said(
            f"There `{_OPPOSITE}` correlates the other way round (mean {opposite:+.2f}) from span "
            "prediction (mean)",
            {task: (own < 0 < opposite, f"{own:+.2f}") for task, own in means.items()},
        ),
        said(
            f"Direction balance correlates by more than {BALANCED} within few offsets, and less "
            f"within all (the most within 1 to {NEAR} offsets, and within all)",
            balance,
        ),
    )


def _within(numbers: Numbers, key: str, first: int, last: int) -> list[float]:
    """The correlations of a property with a task that there are at some of the reaches."""
    return [
        value
        for reach, value in zip(numbers["reaches"], numbers.get(key, ()), strict=False)
        if first <= reach <= last and value is not None
    ]


def of_relative(numbers: Numbers) -> str:
    """Figure 6: whether far vectors are alike, and those of one side more than those of two."""
    learned = {name: one for name, one in numbers.items() if one["relative"] == LEARNED}
    far = {
        name: (near is not None and near <= ALIKE_BY, "never" if near is None else f"from {near}")
        for name, near in ((name, one["alike_from"]) for name, one in learned.items())
    }
    gaps = {name: side_gap(_tensor(one["cosines"])) for name, one in learned.items()}
    sides = "Learned vectors of one side are more alike than those of two (mean cosines)"
    return sentences(
        said(f"Learned vectors are alike from an offset of {ALIKE_BY} on at latest", far),
        said(sides, signs(gaps)),
    )


def of_correspondence(numbers: Numbers) -> str:
    """Figure 9: whether near positions correspond more than far ones."""
    gaps = {name: near_less_far(_tensor(one["position_position"])) for name, one in numbers.items()}
    return said(f"Awareness of distance ({_GAP})", signs(gaps))


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
