"""Figures of a first layer's scores in "On Position Embeddings in BERT": 2, 9, 10 and 11."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fairseq_plugins.analysis.correspondence import position_correlation, split_first_layer
from fairseq_plugins.analysis.figure_files import SCALES, Panel
from fairseq_plugins.analysis.figure_inputs import (
    LEARNED,
    LEARNED_SINUSOIDS,
    Figure,
    FigureInput,
    FigureSizes,
    Numbers,
    common_length,
)
from fairseq_plugins.analysis.identical_words import Probe, draw_words, probe
from fairseq_plugins.analysis.indicators import NEAR as MIDDLE
from fairseq_plugins.analysis.indicators import (
    direction_balance,
    infinite,
    measure,
    monotonicity,
    translation_invariance,
)
from fairseq_plugins.analysis.loaded_stacks import KINDS, LM, ROBERTA, TRANSLATION
from fairseq_plugins.analysis.position_vectors import (
    NEAR_MINUS_FAR,
    asymmetry,
    by_offset,
    near_minus_far,
)
from fairseq_plugins.analysis.sentences import sentences, signs, summarise, summarise_values
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.bert_families import COLUMNS, MODEL_TYPES, TABLE_7

# Labels of the scales, and of columns and rows.
SCORE, WEIGHT_ROOT = "score", "square root of the weight"
PAIRS = ("position of the key", "position of the query")
# A property holds below these limits (0 is perfect, 1 the worst): variance within offsets, pairs
# out of order (0.5 at random), difference between the two directions of a pair.
INVARIANT, ORDERED, SYMMETRIC = 0.5, 0.25, 0.25
UNEQUAL = 1.1  # factor between the weights of the two directions


def position_positions(
    inputs: Sequence[FigureInput], sizes: FigureSizes
) -> tuple[Numbers, list[str]]:
    """Measure P W_Q W_K^T P^T, averaged over heads, and the shares of Eq. 7's terms (Figure 9)."""
    numbers, lines = {}, []
    for item in inputs:
        if item.loaded is not None and item.loaded.is_causal:
            # Masked keys have scores of -inf, and so no variance to split.
            raise OptionError(
                f"figure 9 needs bidirectional models, but {item.label} is a causal "
                f"{item.loaded.family}"
            )
    _require_softmax(inputs, sizes)
    length = common_length(inputs, sizes)
    for item in inputs:
        loaded, rows = item.loaded, item.absolute(length)
        if loaded is None or rows is None:
            continue
        with torch.no_grad():
            matrix = position_correlation(loaded, rows).mean(0).double().cpu()
        words = draw_words(loaded.dictionary, sizes.words, sizes.seed)
        draw = torch.Generator().manual_seed(sizes.seed)
        tokens = words[torch.randint(len(words), (4, len(rows)), generator=draw)]
        tokens[:, : loaded.num_bos] = loaded.dictionary.bos()
        shares = split_first_layer(
            loaded, tokens.to(next(loaded.model.parameters()).device)
        ).shares()
        numbers[item.label] = {"position_position": matrix, "shares_of_scores": shares}
        lines.append([item.label, *(f"{share:z.3f}" for share in shares.values())])
    sizes.require(lines, "a checkpoint with an absolute encoding")
    header = ["", "word-word", "word-position", "position-word", "position-position", "rest"]
    return numbers, [
        "The terms of Eq. 7 in the first layer, for random words of the dictionary: covariance "
        "of each term with the score, as a share of the score's variance between keys, both "
        "pooled over heads, queries and samples. Unlike in Eq. 7, normalisations between "
        "embedding and projection are applied. *Rest* comes from encodings inside the "
        "attention.",
        SCALES,
        markdown_table(header, lines, left=1),
    ]


def check_correspondence(numbers: Numbers) -> str:
    """Check Figure 9: near positions correspond more than far ones."""
    gaps = {name: near_minus_far(one["position_position"]) for name, one in numbers.items()}
    return summarise(f"Awareness of distance ({NEAR_MINUS_FAR})", signs(gaps))


def identical_words(inputs: Sequence[FigureInput], sizes: FigureSizes) -> tuple[Numbers, list[str]]:
    """Measure scores before the softmax, and the weights after it (Figures 2 and 11)."""
    numbers, lines = {}, []
    for item, result in _probes(inputs, sizes):
        inner = slice(result.loaded.num_bos, len(result.scores) - result.loaded.num_eos)
        offsets = by_offset(result.scores[inner, inner])
        middle = len(offsets) // 2
        neighbours = offsets[middle - 1 : middle + 2 : 2]
        # In a causal model the next word is masked, and the only neighbour is the one before.
        band = float(offsets[middle] - neighbours[neighbours.isfinite()].mean())
        numbers[item.label] = {
            "words": result.words,
            "scores": result.scores,
            "weights": result.weights,
            "scores_by_offset": offsets,
            "band": band,
            # Here, since the weights' rounding makes some pairs of far keys equal.
            "metrics": measure(result.weights, result.loaded.num_bos, result.loaded.num_eos),
            "asymmetry": asymmetry(result.weights),
            "relative": item.relative_kind(),
        }
        lines.append([item.label, str(result.words), f"{band:+.3f}"])
    header = ["", "words", "own score minus its neighbours'"]
    return numbers, [
        "Left: scaled scores before the softmax, as in Appendix J; right: the square root of "
        "the weights after it. Averaged over words and the first layer's heads.",
        SCALES,
        markdown_table(header, lines, left=1),
        "Below 0 the diagonal is a white band: a word attends less to itself than beside it.",
    ]


def pair_maps(numbers: Numbers, *keys: str) -> list[Panel]:
    """Make maps of pairs of positions, one for each of `keys`; of weights the square root."""
    panels = []
    for label, one in numbers.items():
        for key in keys:
            title = f"{label}: {key}" if len(keys) > 1 else label
            matrix, unit = one[key], SCORE
            if key == "weights":
                matrix, unit = matrix.sqrt(), WEIGHT_ROOT
            panels.append(Panel(title, matrix, axes=PAIRS, unit=unit))
    return panels


def check_identical_words(numbers: Numbers) -> str:
    """Check Figures 2 and 11: three properties of the weights, direction balance, white band."""
    weights = {name: one["weights"] for name, one in numbers.items()}
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


def families(inputs: Sequence[FigureInput], sizes: FigureSizes) -> tuple[Numbers, list[str]]:
    """Measure masked, causal and translation models (Figure 10 and Table 7)."""
    numbers, lines = {}, []
    for name, printed in TABLE_7.items():
        lines.append([f"{name} (paper)", MODEL_TYPES[name], *(_number(value) for value in printed)])
    for item, result in _probes(inputs, sizes):
        loaded = result.loaded
        metrics = measure(result.weights, loaded.num_bos, loaded.num_eos)
        endless = infinite(result.weights)
        values = [float("inf") if column in endless else metrics[column] for column in COLUMNS]
        numbers[item.label] = {
            "model": loaded.family,
            "kind": KINDS[loaded.family],
            "metrics": metrics,
            "infinite": endless,
            "words": result.words,
            "weights": result.weights,
        }
        lines.append([f"**{item.label}**", KINDS[loaded.family], *map(_number, values)])
    header = ["model", "kind", *COLUMNS.values()]
    return numbers, [
        "Square root of the first layer's attention weights over sentences that repeat a word. "
        "A causal model attends to no later word: its direction balance is infinite (`inf`, as "
        "in the paper), and of the two sequences of each query in the monotonicity, the later "
        "one is 0 throughout, which counts as in order.",
        SCALES,
        markdown_table(header, lines, left=2),
    ]


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
            if None in values:  # equal weights have no variance
                continue
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


def _require_softmax(inputs: Sequence[FigureInput], sizes: FigureSizes) -> None:
    """Raise OptionError naming a model whose attention has no weights."""
    for label, loaded in ((item.label, item.loaded) for item in inputs):
        attention = None if loaded is None else loaded.stack.layers[0].self_attn.attention
        if attention is not None and not isinstance(attention, SoftmaxAttention):
            raise OptionError(
                f"figure {sizes.figure} needs softmax attention, but {label} has {attention.name}"
            )


def _probes(inputs: Sequence[FigureInput], sizes: FigureSizes) -> list[tuple[FigureInput, Probe]]:
    _require_softmax(inputs, sizes)
    with_models = [(one, one.loaded) for one in inputs if one.loaded is not None]
    length = common_length(inputs, sizes)
    return [
        (item, probe(loaded, words=sizes.words, length=length, seed=sizes.seed))
        for item, loaded in sizes.require(with_models, "a checkpoint")
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


_IDENTICAL = Figure(
    "Identical words: scores and weights",
    "clear translation invariance, local monotonicity and symmetry under almost all embeddings, a "
    "learnable sinusoidal RPE that looks ahead and back unequally, and a white band along the "
    "diagonal, clearer before the softmax, under the learned RPE, the learnable sinusoidal RPE and "
    "combinations with them.",
    identical_words,
    lambda numbers: pair_maps(numbers, "scores", "weights"),
    check=check_identical_words,
)
FIGURES = {
    2: _IDENTICAL,
    9: Figure(
        "Position-position correspondence and the terms of Eq. 7",
        "some awareness of distance in the mean of P W_Q W_K^T P^T over heads.",
        position_positions,
        lambda numbers: pair_maps(numbers, "position_position"),
        check=check_correspondence,
    ),
    10: Figure(
        "Identical words in other models (with Table 7)",
        "GPT-2 is the most monotone, the least translation invariant, since its tokens also look "
        "at the first few, and the least symmetric; the encoder of machine translation looks "
        "slightly more ahead, BERT back.",
        families,
        lambda numbers: pair_maps(numbers, "weights"),
        check=check_families,
    ),
    11: replace(_IDENTICAL, title=f"{_IDENTICAL.title} of more embeddings"),
}
