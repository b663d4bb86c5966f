"""Figures of "On Position Embeddings in BERT" made from encodings or checkpoints.

Figure 5 needs results of training (`report.correlation_by_offset`), and so does Figure 7, SQuAD
during pre-training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.analysis.agreement import (
    Check,
    check_correspondence,
    check_families,
    check_frequencies,
    check_identical_words,
    check_relative,
    check_training,
    check_vectors,
)
from fairseq_plugins.analysis.figure_files import (
    Panel,
    RenderedFigure,
    draw_panels,
    read_numbers,
)
from fairseq_plugins.analysis.figure_inputs import (
    BERT_HEADS,
    BERT_WIDTH,
    FigureInput,
    FigureSizes,
    untrained_input,
)
from fairseq_plugins.analysis.probe_figures import (
    families,
    identical_words,
    position_panels,
    position_positions,
    weight_panels,
    word_panels,
)
from fairseq_plugins.analysis.vector_figures import (
    cosine_panels,
    dot_panels,
    dots,
    fixed_waves,
    learned_waves,
    relative_cosines,
)
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.pictures import save_picture

Maker = Callable[[Sequence[FigureInput], FigureSizes], RenderedFigure]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes:
        make: draws the figure from its inputs.
        title: title of the figure.
        paper: the paper's observation.
        untrained: encodings shown when no checkpoint is given; () if the figure needs one.
        takes_inputs: whether checkpoints change the figure.
        check: compares the numbers with the paper's observation.
        panels: makes the maps of a figure from its numbers; None for a figure of lines.
    """

    make: Maker
    title: str
    paper: str
    untrained: tuple[str, ...] = ()
    takes_inputs: bool = True
    check: Check = lambda numbers: ""
    panels: Callable[[Mapping[str, Any]], list[Panel]] | None = None


_PROBED = (
    "clear translation invariance, local monotonicity and symmetry under almost all embeddings, a "
    "learnable sinusoidal RPE that looks ahead and back unequally, and a white band along the "
    "diagonal, clearer before the softmax, under the learned RPE, the learnable sinusoidal RPE and "
    "combinations with them."
)
_UNTRAINED = (
    f"Fixed sinusoids with BERT-base's sizes ({BERT_WIDTH} features, {BERT_HEADS} heads), without "
    "training. The paper's other panels show trained models: give checkpoints to the command."
)
FIGURES: dict[int, Figure] = {
    1: Figure(
        dots,
        "Dot products between position vectors",
        "neighbouring absolute vectors are closer than far ones, learnable sinusoids more clearly; "
        "of learned relative vectors those of small offsets are unlike all others, and those "
        "beyond 20 are alike.",
        ("sinusoidal", "sinusoidal_rpe"),
        check=check_vectors,
        panels=dot_panels,
    ),
    2: Figure(
        identical_words,
        "Identical words: scores and weights",
        _PROBED,
        check=check_identical_words,
        panels=word_panels,
    ),
    3: Figure(
        fixed_waves,
        "Fixed sinusoids by offset",
        "psi is monotone for m between 0 and 50, roughly; small frequencies hardly tell positions "
        "apart, large ones let it fall at once. (Its first rise is at m = 44.)",
        ("sinusoidal",),
        takes_inputs=False,
    ),
    4: Figure(
        learned_waves,
        "Learned frequencies of the sinusoidal APE",
        "learned frequencies are mostly below the fixed ones; far positions are closer than with "
        "fixed ones, and models fine-tuned for spans are monotone over more offsets than those for "
        "classes, which the pre-trained model is more like.",
        check=check_frequencies,
    ),
    6: Figure(
        relative_cosines,
        "Cosine similarity of relative vectors",
        "of learned relative vectors, those beyond offsets of 20 to 25 are not significantly "
        "different; vectors of one side are slightly more alike than those of two.",
        ("sinusoidal_rpe",),
        check=check_relative,
        panels=cosine_panels,
    ),
    8: Figure(
        dots,
        "Dot products between position vectors while training",
        "no pattern at first; with more steps translation invariance and local monotonicity "
        "emerge.",
        check=check_training,
        panels=dot_panels,
    ),
    9: Figure(
        position_positions,
        "Position-position correspondence and the terms of Eq. 7",
        "some awareness of distance in the mean of P W_Q W_K^T P^T over heads.",
        check=check_correspondence,
        panels=position_panels,
    ),
    10: Figure(
        families,
        "Identical words in other models (with Table 7)",
        "GPT-2 is the most monotone, the least translation invariant, since its tokens also look "
        "at the first few, and the least symmetric; the encoder of machine translation looks "
        "slightly more ahead, BERT back.",
        check=check_families,
        panels=weight_panels,
    ),
    11: Figure(
        identical_words,
        "Identical words: scores and weights of more embeddings",
        _PROBED,
        check=check_identical_words,
        panels=word_panels,
    ),
}


def make_figure(number: int, inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Make a figure of the paper; without inputs, of untrained encodings.

    Raises:
        ValueError: no input has the vectors or scores that the figure shows.
    """
    figure, sizes = FIGURES[number], replace(sizes, figure=number)
    untrained = [] if inputs else [untrained_input(n, seed=sizes.seed) for n in figure.untrained]
    rendered = figure.make(inputs or untrained, sizes)
    note = [_UNTRAINED] if untrained and figure.takes_inputs else []
    paragraphs = [*note, *rendered.paragraphs]
    return replace(rendered, paragraphs=paragraphs, agreement=figure.check(rendered.numbers))


def redraw(number: int, file: Path) -> None:
    """Draw the maps of a figure's JSON as PNG and SVG beside it, without its models.

    Raises:
        OptionError: the figure has no maps.
    """
    panels = FIGURES[number].panels if number in FIGURES else None
    if panels is None:
        raise OptionError(f"--redraw must be left out with figure {number}, which has no maps")
    save_picture(draw_panels(panels(read_numbers(file))), file.with_suffix(""))
