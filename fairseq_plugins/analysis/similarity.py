"""Similarity of the layers of models: linear centred kernel alignment (CKA).

Kornblith et al., "Similarity of Neural Network Representations Revisited" (2019).

Shapes: N tokens, C features.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from fairseq_plugins.analysis.figure_files import Panel, RenderedFigure, draw_panels
from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.analysis.samples import Sample
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table

ALONE = 0.5  # share of a layer's variance from which one token decides about CKA


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Compute |Y^T X|^2 / (|X^T X| |Y^T Y|) of centred features (N, C) and (N, D).

    0..1, in Frobenius norms: 1 where one is the other rotated, scaled and shifted; NaN where the
    features of one are constant.
    """
    x, y = (one - one.mean(0) for one in (x, y))
    found = (y.mT @ x).square().sum() / ((x.mT @ x).norm() * (y.mT @ y).norm())
    return float(found.clamp(max=1.0))  # rounding may give more


def largest_share(x: Tensor) -> float:
    """Compute the share of the variance of features (N, C) that the furthest token has."""
    squares = (x - x.mean(0)).square().sum(1)
    return float(squares.max() / squares.sum())


@torch.no_grad()
def layer_states(loaded: LoadedStack, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the features (N, C) of the first layer's input and of each layer's output.

    Special tokens before a sample are left out.
    """
    device = next(loaded.model.parameters()).device
    found = [
        [state[loaded.num_bos :, 0].double().cpu() for state in states]
        for one in samples
        for states in [loaded.run(one.tokens.unsqueeze(0).to(device))]
    ]
    return [torch.cat(states) for states in zip(*found, strict=True)]


def similarity_figure(states: Mapping[str, Sequence[Tensor]]) -> RenderedFigure:
    """Draw the CKA of every two layers, of each model with itself and with each other.

    states: `layer_states` by the model's label, of the same tokens.

    Raises:
        OptionError: fewer tokens than features, where CKA is high for any two models.
    """
    count = min(len(layers[0]) for layers in states.values())
    widest = max(layer.size(1) for layers in states.values() for layer in layers)
    if count <= widest:
        raise OptionError(
            f"`tokens` must be above {widest}, the models' features, to compare them by CKA, but "
            f"are {count}"
        )
    panels, numbers, lines = [], {}, []
    for one, other in combinations_with_replacement(states, 2):
        matrix = torch.tensor(
            [[linear_cka(x, y) for y in states[other]] for x in states[one]], dtype=torch.float64
        )
        name = one if one == other else f"{one} and {other}"
        axes = (f"layer of {other}", f"layer of {one}")
        panels.append(Panel(name, matrix, axes=axes, unit="linear CKA", limits=(0.0, 1.0)))
        numbers[name] = matrix
        if one != other:
            equal = ", ".join(f"{value:.3f}" for value in matrix.diagonal().tolist())
            lines.append([name, equal, f"{matrix.mean():.3f}"])
    how = (
        f"Linear CKA (Kornblith et al., 2019) of the same {count:,} tokens: 1 where two layers are "
        "alike but for a rotation, a scale and a shift. Layer 0 is the first layer's input."
    )
    alone = [
        f"{name} ({index}: {share:.1%})"
        for name, layers in states.items()
        for index, share in enumerate(map(largest_share, layers))
        if share > ALONE
    ]
    warning = (
        "**One token decides** about these models, since it has so much of a layer's variance: "
        f"{', '.join(alone)}. Outliers are frequent under linear attention, whose denominators may "
        "be close to zero."
    )
    table = [markdown_table(["", "equal layers, from 0", "mean of all"], lines, left=2)]
    return RenderedFigure(
        draw_panels(panels),
        {"tokens": count, "cka": numbers},
        [how, *[warning] * bool(alone), *table * bool(lines)],
    )
