"""Figures of a first layer's scores in "On Position Embeddings in BERT": 2, 9, 10 and 11."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fairseq_plugins.analysis.correspondence import position_correlation, split_first_layer
from fairseq_plugins.analysis.figure_files import SCALES, Panel, RenderedFigure, draw_panels
from fairseq_plugins.analysis.figure_inputs import (
    FigureInput,
    FigureSizes,
    common_length,
)
from fairseq_plugins.analysis.identical_words import Probe, draw_words, probe
from fairseq_plugins.analysis.indicators import infinite, measure
from fairseq_plugins.analysis.loaded_stacks import KINDS
from fairseq_plugins.analysis.position_vectors import asymmetry, by_offset
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.bert_families import COLUMNS, MODEL_TYPES, TABLE_7

# Labels of the scales, and of columns and rows.
SCORE, WEIGHT_ROOT = "score", "square root of the weight"
PAIRS = ("position of the key", "position of the query")
APPENDIX_J = 100  # words of the paper's Figure 11


def position_positions(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figure 9, P W_Q W_K^T P^T averaged over heads, and the shares of Eq. 7's terms."""
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
        words = draw_words(loaded.dictionary, _words(sizes), sizes.seed)
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
    return RenderedFigure(
        draw_panels(position_panels(numbers)),
        numbers,
        [
            "The terms of Eq. 7 in the first layer, for random words of the dictionary: covariance "
            "of each term with the score, as a share of the score's variance between keys, both "
            "pooled over heads, queries and samples. Unlike in Eq. 7, normalisations between "
            "embedding and projection are applied. *Rest* comes from encodings inside the "
            "attention.",
            SCALES,
            markdown_table(header, lines, left=1),
        ],
    )


def position_panels(numbers: Mapping[str, Any]) -> list[Panel]:
    """Make the panels of Figure 9."""
    return [
        Panel(label, one["position_position"], axes=PAIRS, unit=SCORE)
        for label, one in numbers.items()
    ]


def identical_words(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figures 2 and 11: scores before the softmax, beside the weights after it."""
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
    return RenderedFigure(
        draw_panels(word_panels(numbers)),
        numbers,
        [
            "Left: scaled scores before the softmax, as in Appendix J; right: the square root of "
            "the weights after it. Averaged over words and the first layer's heads.",
            SCALES,
            markdown_table(header, lines, left=1),
            "Below 0 the diagonal is a white band: a word attends less to itself than beside it.",
        ],
    )


def word_panels(numbers: Mapping[str, Any]) -> list[Panel]:
    """Make the panels of Figures 2 and 11."""
    panels = []
    for label, one in numbers.items():
        panels.append(Panel(f"{label}: scores", one["scores"], axes=PAIRS, unit=SCORE))
        root = one["weights"].sqrt()
        panels.append(Panel(f"{label}: weights", root, axes=PAIRS, unit=WEIGHT_ROOT))
    return panels


def families(inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Draw Figure 10 and Table 7: masked, causal and translation models."""
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
    return RenderedFigure(
        draw_panels(weight_panels(numbers)),
        numbers,
        [
            "Square root of the first layer's attention weights over sentences that repeat a word. "
            "A causal model attends to no later word: its direction balance is infinite (`inf`, as "
            "in the paper), and of the two sequences of each query in the monotonicity, the later "
            "one is 0 throughout, which counts as in order.",
            SCALES,
            markdown_table(header, lines, left=2),
        ],
    )


def weight_panels(numbers: Mapping[str, Any]) -> list[Panel]:
    """Make the panels of Figure 10."""
    return [
        Panel(label, one["weights"].sqrt(), axes=PAIRS, unit=WEIGHT_ROOT)
        for label, one in numbers.items()
    ]


def _words(sizes: FigureSizes) -> int:
    return APPENDIX_J if sizes.words is None else sizes.words


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
        (item, probe(loaded, words=_words(sizes), length=length, seed=sizes.seed))
        for item, loaded in sizes.require(with_models, "a checkpoint")
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
