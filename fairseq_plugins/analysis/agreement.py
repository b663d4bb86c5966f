"""Comparison of our numbers with what the BERT paper observed in its figures.

Each function named `check_...` takes the numbers of a figure's JSON and returns sentences that say
which of the paper's observations hold, or "" if the numbers decide none of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_inputs import FIXED_SINUSOIDS, LEARNED, LEARNED_SINUSOIDS
from fairseq_plugins.analysis.indicators import NEAR as MIDDLE
from fairseq_plugins.analysis.indicators import (
    direction_balance,
    monotonicity,
    translation_invariance,
)
from fairseq_plugins.analysis.loaded_stacks import KINDS, LM, ROBERTA, TRANSLATION
from fairseq_plugins.analysis.position_vectors import (
    ALIKE,
    NEAR,
    asymmetry,
    clearness,
    first_rise,
    near_minus_far,
    offset_share,
    side_gap,
)
from fairseq_plugins.analysis.sentences import sentences, signs, summarise, summarise_values
from fairseq_plugins.papers.bert_figures import CLASSES, SPANS

Numbers = Mapping[str, Any]
Check = Callable[[Numbers], str]

FAR = 20  # relative vectors beyond this offset are far, as in the paper's Figure 1
ALIKE_BY = 25  # the paper: 20 to 25
# A property holds below these limits (0 is perfect, 1 the worst): variance within offsets, pairs
# out of order (0.5 at random), difference between the two directions of a pair.
INVARIANT, ORDERED, SYMMETRIC = 0.5, 0.25, 0.25
UNEQUAL = 1.1  # factor between the weights of the two directions
_GAP = f"mean over pairs 1 to {NEAR} apart minus that over pairs half the length apart and more"


def check_vectors(numbers: Numbers) -> str:
    """Check Figure 1: neighbours are closer, and far relative vectors are alike."""
    matrices = {name: _tensor(one["dot_products"]) for name, one in numbers.items()}
    kinds = {name: one["vectors"] for name, one in numbers.items()}
    absolute = {name: m for name, m in matrices.items() if not name.endswith("relative")}
    learned = {
        name: matrix
        for name, matrix in matrices.items()
        if name not in absolute and kinds[name] == LEARNED
    }
    return sentences(
        summarise(
            f"Neighbouring absolute vectors are closer than far ones ({_GAP})",
            signs({name: near_minus_far(matrix) for name, matrix in absolute.items()}),
        ),
        _check_clearness({name: clearness(matrix) for name, matrix in absolute.items()}, kinds),
        *_check_relative_sides(learned),
    )


def _check_clearness(found: Mapping[str, float], kinds: Mapping[str, str]) -> str:
    """Check that learnable sinusoids separate near from far more clearly than learned tables."""
    learnable, learned, fixed = (
        {name: value for name, value in found.items() if kinds[name] == kind}
        for kind in (LEARNED_SINUSOIDS, LEARNED, FIXED_SINUSOIDS)
    )
    if not learned:
        return ""
    most = max(learned.values())
    note = ""
    if fixed:
        note = f"; fixed sinusoids, not in the paper's figure: {max(fixed.values()):.3g}"
    return summarise(
        "More clearly under learnable sinusoids than learned vectors (in standard deviations over "
        f"all pairs; learned vectors at most {most:.3g}{note})",
        {name: (value > most, f"{value:.3g}") for name, value in learnable.items()},
    )


def _check_relative_sides(matrices: Mapping[str, Tensor]) -> tuple[str, str]:
    """Compare near and far relative vectors by cosine, from dot products (2k + 1, 2k + 1)."""
    apart, alike = {}, {}
    for name, matrix in matrices.items():
        if len(matrix) // 2 <= FAR:
            continue  # a table that ends before
        sizes = matrix.diagonal().sqrt()
        offset = (torch.arange(len(matrix)) - len(matrix) // 2).abs()
        found, small, far = matrix / sizes / sizes[:, None], offset <= NEAR, offset > FAR
        among = found[far][:, far]
        within = float(among[~torch.eye(len(among), dtype=torch.bool)].mean())
        between = float(found[small][:, far].mean())
        apart[name] = (between < within, f"{between:.3g} against {within:.3g}")
        alike[name] = (within > ALIKE, f"{within:.3g}")
    return (
        summarise(
            f"Learned relative vectors of offsets up to {NEAR} differ more from those beyond {FAR} "
            "than these from each other (mean cosines)",
            apart,
        ),
        summarise(
            f"Learned relative vectors beyond {FAR} are alike (mean cosine above {ALIKE})", alike
        ),
    )


def check_training(numbers: Numbers) -> str:
    """Check Figure 8: invariance and monotonicity emerge from the first panel to the last."""
    relative = [name for name in numbers if name.endswith(", relative")]
    kinds = [name for name in numbers if name not in relative], relative  # which do not compare
    return sentences(*(_check_ends(numbers, names) for names in kinds if len(names) > 1))


def _check_ends(numbers: Numbers, names: Sequence[str]) -> str:
    """Compare the first and the last panel of one kind of vectors."""
    ends = [_tensor(numbers[name]["dot_products"]) for name in (names[0], names[-1])]
    parts = []
    for quantity, measure in (
        ("the share of the variance between positions that the offset explains", offset_share),
        (_GAP, near_minus_far),
    ):
        first, last = (measure(matrix) for matrix in ends)
        word = "rises" if last > first else "does not rise"
        parts.append(
            f"{quantity} {word}, from {first:.3g} ({names[0]}) to {last:.3g} ({names[-1]})"
        )
    return f"Translation invariance: {parts[0]}; local monotonicity: {parts[1]}."


def check_bands(numbers: Numbers) -> str:
    """Check Figures 2 and 11: learned and learnable sinusoidal RPEs have a white diagonal band."""
    bands = {name: one["band"] for name, one in numbers.items()}
    trained = (LEARNED, LEARNED_SINUSOIDS)
    named = {name: band for name, band in bands.items() if numbers[name]["relative"] in trained}
    text = summarise(
        "A white band under the learned RPE, the learnable sinusoidal RPE and combinations with "
        "them (below 0 in the table)",
        signs(named, below=True),
    )
    others = [f"`{name}`" for name in bands if name not in named and bands[name] < 0]
    if text and others:
        text += f" Without these RPEs there is one, too, under {', '.join(others)}."
    return text


def check_identical_words(numbers: Numbers) -> str:
    """Check Figures 2 and 11: three properties of the weights, direction balance, white band."""
    weights = {name: _tensor(one["weights"]) for name, one in numbers.items()}
    return sentences(
        summarise_values(
            "Translation invariance (share of the weights' variance that is within offsets, "
            f"below {INVARIANT})",
            {name: translation_invariance(matrix) for name, matrix in weights.items()},
            lambda value: value < INVARIANT,
        ),
        summarise_values(
            f"Local monotonicity (share of pairs within {MIDDLE} offsets whose more distant word "
            f"weighs more, below {ORDERED}; 0.5 in random order)",
            {name: monotonicity(matrix, MIDDLE) for name, matrix in weights.items()},
            lambda value: value < ORDERED,
        ),
        summarise_values(
            "Symmetry (difference between the two directions of pairs as a share of their weight, "
            f"below {SYMMETRIC})",
            {name: asymmetry(matrix) for name, matrix in weights.items()},
            lambda value: value < SYMMETRIC,
        ),
        _check_direction_balance(
            {name: direction_balance(matrix) for name, matrix in weights.items()},
            {name: one["relative"] for name, one in numbers.items()},
        ),
        check_bands(numbers),
    )


def _check_direction_balance(balances: Mapping[str, float], relative: Mapping[str, str]) -> str:
    """Check that learnable sinusoidal RPEs weigh directions less equally than other RPEs do."""
    others = [balances[n] for n, kind in relative.items() if kind not in ("", LEARNED_SINUSOIDS)]
    if not others:
        return ""
    most = max(others, key=_imbalance)
    least = max(_imbalance(most), math.log(UNEQUAL))
    return summarise(
        "Under the learnable sinusoidal RPE and its combinations, weights back and ahead differ "
        f"by more than a factor of {UNEQUAL} and more than under all other RPEs (weight back over "
        f"weight ahead, within {MIDDLE} offsets; of the others {most:.3f} is furthest from 1)",
        {
            name: (_imbalance(balances[name]) > least, f"{balances[name]:.3f}")
            for name, kind in relative.items()
            if kind == LEARNED_SINUSOIDS
        },
    )


def _imbalance(balance: float) -> float:
    """Return the distance of a ratio from 1, equal for a ratio and its inverse."""
    return abs(math.log(balance))


def check_frequencies(numbers: Numbers) -> str:
    """Check Figure 4: learned frequencies are below the fixed ones, and psi is flatter."""
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
        summarise_values(
            "Learned frequencies are mostly below the fixed ones",
            shares,
            lambda share: share > 0.5,
            ".0%",
        ),
        summarise_values(
            "Far positions are closer than with fixed ones (mean of psi(m) / psi(0) over the "
            "second half of the offsets minus that with fixed ones)",
            {name: float((values[far] - fixed[far]).mean()) for name, values in psi.items()},
            lambda more: more > 0,
            "+.3g",
        ),
        *_check_tasks(psi),
    )


def _check_tasks(psi: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Compare psi after fine-tuning for spans and for classes; () without models of both."""
    spans, classes = (
        {name: values for name, values in psi.items() if name.startswith(label)}
        for label in (SPANS, CLASSES)
    )
    if not (spans and classes):
        return ()
    rises = {name: first_rise(v) or len(v) for name, v in {**spans, **classes}.items()}
    most = max(rises[name] for name in classes)
    distances = {
        name: [
            sum(float((values - tuned).abs().mean()) for tuned in side.values()) / len(side)
            for side in (classes, spans)
        ]
        for name, values in psi.items()
        if name not in {**spans, **classes}
    }
    return (
        summarise(
            "Models fine-tuned for spans are monotone over more offsets than all fine-tuned for "
            f"classes (where psi first rises; for classes at {most} at latest)",
            {name: (rises[name] > most, str(rises[name])) for name in spans},
        ),
        summarise(
            "Before fine-tuning, psi is closer to that of classes than to that of spans (mean "
            "distances)",
            {
                name: (near < far, f"{near:.3g} against {far:.3g}")
                for name, (near, far) in distances.items()
            },
        ),
    )


def check_relative(numbers: Numbers) -> str:
    """Check Figure 6: far vectors are alike, those of one side more than those of two."""
    learned = {name: one for name, one in numbers.items() if one["relative"] == LEARNED}
    reach = {name: len(one["cosines"]) // 2 for name, one in learned.items()}
    far = {
        name: (near is not None and near <= ALIKE_BY, "never" if near is None else f"from {near}")
        for name, near in ((name, one["alike_from"]) for name, one in learned.items())
        if reach[name] > ALIKE_BY  # a shorter table ends before
    }
    gaps = {
        name: side_gap(_tensor(one["cosines"])) for name, one in learned.items() if reach[name] > 1
    }
    sides = "Learned vectors of one side are more alike than those of two (mean cosines)"
    return sentences(
        summarise(f"Learned vectors are alike from an offset of {ALIKE_BY} on at latest", far),
        summarise(sides, signs(gaps)),
    )


def check_correspondence(numbers: Numbers) -> str:
    """Check Figure 9: near positions correspond more than far ones."""
    gaps = {
        name: near_minus_far(_tensor(one["position_position"])) for name, one in numbers.items()
    }
    return summarise(f"Awareness of distance ({_GAP})", signs(gaps))


def check_families(numbers: Numbers) -> str:
    """Check Figure 10 and Table 7: differences between the three families of models."""
    by_kind: dict[str, Mapping[str, Any]] = {}
    for one in numbers.values():
        by_kind.setdefault(one["kind"], one["metrics"])
    causal = by_kind.pop(KINDS[LM], None)
    found: dict[str, tuple[bool, str]] = {}
    if causal is not None and by_kind:
        others = by_kind.values()
        for observation, metric, is_least in (
            ("the language model is the most monotone", "monotonicity", True),
            ("the least translation invariant", "translation_invariance_words", False),
            ("the least symmetric", "symmetry", False),
        ):
            values = [one[metric] for one in (causal, *others)]
            best = min(values) if is_least else max(values)
            found[observation] = (values[0] == best, "")
    for observation, family, is_ahead in (
        ("the masked model attends more backwards", ROBERTA, False),
        ("the translation encoder more ahead", TRANSLATION, True),
    ):
        balance = by_kind.get(KINDS[family], {}).get("direction_balance")
        if balance is not None:
            found[observation] = (balance < 1 if is_ahead else balance > 1, f"{balance:.4f}")
    text = "; ".join(
        f"{observation}: {'yes' if is_so else 'no'}{f' ({number})' if number else ''}"
        for observation, (is_so, number) in found.items()
    )
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)
