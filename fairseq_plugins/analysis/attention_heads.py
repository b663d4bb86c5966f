"""Attention of every layer's heads: a map of one sample, and measures over several.

The mean distance and the entropy are those of Vig and Belinkov, "Analyzing the Structure of
Attention in a Transformer Language Model" (2019).

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_files import RenderedFigure, add_scale, grey_limits
from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.analysis.samples import Sample
from fairseq_plugins.analysis.softmax_inputs import recorded_heads
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table

FEW = 4  # maps of a large picture, which has room for tokens at the axes
LARGE, SMALL = 3.6, 1.8  # inches of a map, of few and of more
TOKEN, MOST_TOKENS = 0.16, 40  # inches of a token at an axis, and how many are shown
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
    return RenderedFigure(
        _draw(weights, [*numbers], rows, columns),
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
    """Draw a line of maps for each layer; few and short ones have tokens at the axes."""
    from matplotlib.figure import Figure

    (down, across), least = weights.shape[:2], LARGE if len(names) <= FEW else SMALL
    labelled = len(names) <= FEW and max(len(rows), len(columns)) <= MOST_TOKENS
    width, height = (max(least, TOKEN * len(side) * labelled) for side in (columns, rows))
    size = (width * across + 1, height * down + 0.5)
    roots = weights.flatten(0, 1).sqrt().numpy()
    _, most = grey_limits(roots)  # below the first queries' weights of a causal model
    picture = Figure(figsize=size, layout="constrained")
    axes = picture.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axis, name, root in zip(axes.flat, names, roots, strict=True):
        image = axis.imshow(root, cmap="Greys", vmin=0, vmax=most, interpolation="none")
        axis.set_title(name, fontsize=8)
        axis.tick_params(labelsize=7)
        if labelled:
            axis.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
            axis.set_yticks(range(len(rows)), rows, parse_math=False)
    picture.supxlabel("key", fontsize=9)
    picture.supylabel("query", fontsize=9)
    add_scale(picture, image, axes, "square root of the weight")
    return picture
