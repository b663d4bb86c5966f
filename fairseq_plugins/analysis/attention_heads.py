"""Attention of every layer's heads: a map of one sample, and measures over several.

The mean distance and the entropy are those of Vig and Belinkov, "Analyzing the Structure of
Attention in a Transformer Language Model" (2019).

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.figure_files import RenderedFigure, add_scale, grey_limits
from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.analysis.samples import Sample
from fairseq_plugins.analysis.softmax_inputs import recorded_heads
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table

FEW = 4  # maps with axes of their own; more are one image, since axes take seconds each
MAP, TOKEN = 3.6, 0.16  # inches of a map at least, and of a token at its axes
MOST_TOKENS = 40  # shown at an axis
GAP = 2  # pixels between the maps of one image
UNIT = "square root of the weight"
MEASURES = {"distance": "mean distance", "entropy": "entropy, bits", "first": "on the first key"}


@torch.no_grad()
def head_weights(loaded: LoadedStack, sample: Sample, site: str = "") -> Tensor:
    """Return the weights (L, H, T, S) of a sample, at a site of `SITES`, in float64.

    A translation model's decoder reads the sample's target.

    Raises:
        ValueError: no such site, or attention without weights.
    """
    attentions = loaded.softmax_attentions(site)
    device = next(loaded.model.parameters()).device
    tokens = sample.tokens.unsqueeze(0).to(device)
    with recorded_heads(attentions) as found:
        if loaded.languages and site in ("decoder", "cross"):
            lengths = tokens.new_tensor([tokens.size(1)])
            # As in training, the decoder reads </s>, which is the last, before the words.
            loaded.model(tokens, lengths, sample.target.roll(1).unsqueeze(0).to(device))
        else:
            loaded.run(tokens)
    return torch.stack([found[one][1][0] for one in attentions]).double().cpu()


def measure_heads(weights: Tensor) -> dict[str, Tensor]:
    """Compute `MEASURES` of weights (..., T, S), means over queries: (...) each.

    ``distance`` is the mean of |t - s|, ``entropy`` that of the weights in bits, ``first`` the
    weight of the first key, on which heads with nothing to do often rest.
    """
    queries, keys = (torch.arange(size, dtype=weights.dtype) for size in weights.shape[-2:])
    distance = (queries.unsqueeze(1) - keys).abs()
    return {
        "distance": (weights * distance).sum(-1).mean(-1),
        "entropy": torch.special.entr(weights).sum(-1).mean(-1) / math.log(2),
        "first": weights[..., 0].mean(-1),
    }


def heads_figure(
    loaded: LoadedStack,
    samples: Sequence[Sample],
    site: str = "",
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
    text_of: Callable[[str], str | None] = str,
) -> RenderedFigure:
    """Draw the maps of the first sample, and measure the heads over all samples.

    Args:
        loaded: the model.
        samples: at least one.
        site: of `SITES`, by default the stack's own attention.
        layers: numbers of the layers, from 1; () for all.
        heads: numbers of the heads, from 1; () for all.
        text_of: returns a token's text, or None for special tokens.

    Raises:
        ValueError: no such site, layer or head, or attention without weights.
    """
    weights = head_weights(loaded, samples[0], site)
    layers = _chosen("layers", layers, weights.size(0))
    heads = _chosen("heads", heads, weights.size(1))
    taken = torch.tensor(layers).unsqueeze(1) - 1, torch.tensor(heads) - 1
    weights = weights[taken]
    found = [measure_heads(weights)]
    found += [measure_heads(head_weights(loaded, one, site)[taken]) for one in samples[1:]]
    means = {name: torch.stack([one[name] for one in found]).mean(0) for name in MEASURES}
    numbers = {
        f"layer {layer}, head {head}": {
            **{name: float(values[i, j]) for name, values in means.items()},
            "weights": weights[i, j],
        }
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    }
    lines = [
        [head, *(f"{values[name]:.3f}" for name in MEASURES)] for head, values in numbers.items()
    ]
    rows, columns = (
        [text_of(token) or token for token in tokens]
        for tokens in _tokens(loaded, samples[0], site)
    )
    how = (
        "Square root of the weights of one sample, on one scale up to their 99th percentile; each "
        f"row is a query. The table has means over the queries of {len(samples)} samples. *Mean "
        "distance*: between query and key, in tokens; *entropy*: of the weights (Vig and Belinkov, "
        "2019). *On the first key*: the weight there, where heads with nothing to do often rest."
    )
    if len(numbers) > FEW:
        picture = _draw_mosaic(weights, layers, heads)
    else:
        picture = _draw(weights, [*numbers], rows, columns)
    return RenderedFigure(
        picture,
        {"queries": rows, "keys": columns, "samples": len(samples), "heads": numbers},
        [how, markdown_table(["", *MEASURES.values()], lines, left=1)],
    )


def _chosen(name: str, numbers: Sequence[int], size: int) -> list[int]:
    if numbers and max(numbers) > size:
        raise OptionError(
            f"`{name}` must be at most {size}, but are {', '.join(map(str, numbers))}"
        )
    return list(numbers) or list(range(1, size + 1))


def _tokens(loaded: LoadedStack, sample: Sample, site: str) -> tuple[list[str], list[str]]:
    """Return the tokens of queries and keys; a query of the source is the token it predicts."""
    source = [loaded.dictionary[i] for i in sample.tokens.tolist()]
    if not (loaded.languages and site in ("decoder", "cross")):
        return source, source
    target = [loaded.model.decoder.dictionary[i] for i in sample.target.tolist()]
    read = [target[-1], *target[:-1]]
    return (target, source) if site == "cross" else (read, read)


def _draw(weights: Tensor, names: list[str], rows: list[str], columns: list[str]) -> Any:
    """Draw a line of maps for each layer; short ones have tokens at the axes."""
    from matplotlib.figure import Figure

    labelled = max(len(rows), len(columns)) <= MOST_TOKENS
    width, height = (max(MAP, TOKEN * len(side) * labelled) for side in (columns, rows))
    down, across = weights.shape[:2]
    picture = Figure(figsize=(width * across + 1, height * down + 0.5), layout="constrained")
    axes = picture.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axis, name, one in zip(axes.flat, names, weights.flatten(0, 1), strict=True):
        image = _show(axis, one, weights)
        axis.set_title(name, fontsize=8)
        if labelled:
            axis.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
            axis.set_yticks(range(len(rows)), rows, parse_math=False)
    picture.supxlabel("key", fontsize=9)
    picture.supylabel("query", fontsize=9)
    add_scale(picture, image, axes, UNIT)
    return picture


def _draw_mosaic(weights: Tensor, layers: list[int], heads: list[int]) -> Any:
    """Draw maps as one image."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(len(heads) + 2, len(layers) + 1), layout="constrained")
    axis = picture.subplots()
    tiles = nn.functional.pad(weights, (0, GAP, 0, GAP), value=math.nan)
    image = _show(axis, tiles.transpose(1, 2).flatten(2).flatten(0, 1), weights)
    height, width = tiles.shape[-2:]
    axis.set_xticks([(i + 0.5) * width for i in range(len(heads))], [*map(str, heads)])
    axis.set_yticks([(i + 0.5) * height for i in range(len(layers))], [*map(str, layers)])
    axis.set_xlabel("head: its keys", fontsize=9)
    axis.set_ylabel("layer: its queries", fontsize=9)
    add_scale(picture, image, axis, UNIT)
    return picture


def _show(axis: Any, weights: Tensor, every: Tensor) -> Any:
    """Show the roots of weights, on a scale up to a percentile of all; returns the image."""
    _, most = grey_limits(every.sqrt().numpy())  # first queries of causal models are beyond
    axis.tick_params(labelsize=7)
    root = weights.sqrt().numpy()
    return axis.imshow(root, cmap="Greys", vmin=0, vmax=most, interpolation="none")
