"""Figures of "On Position Embeddings in BERT" made from encodings or checkpoints.

Figure 5 needs results of training (`report.correlation_by_offset`), and so does Figure 7, SQuAD
during pre-training.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_plugins.analysis import probe_figures, vector_figures, wave_figures
from fairseq_plugins.analysis.figure_files import RenderedFigure, read_numbers
from fairseq_plugins.analysis.figure_inputs import (
    BERT_HEADS,
    BERT_WIDTH,
    Figure,
    FigureInput,
    FigureSizes,
    untrained_input,
)
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.pictures import save_picture

FIGURES: dict[int, Figure] = {
    **vector_figures.FIGURES,
    **wave_figures.FIGURES,
    **probe_figures.FIGURES,
}
_UNTRAINED = (
    f"Fixed sinusoids with BERT-base's sizes ({BERT_WIDTH} features, {BERT_HEADS} heads), without "
    "training. The paper's other panels show trained models: give checkpoints to the command."
)


def make_figure(number: int, inputs: Sequence[FigureInput], sizes: FigureSizes) -> RenderedFigure:
    """Make a figure of the paper; without inputs, of untrained encodings.

    Raises:
        ValueError: no input has the vectors or scores that the figure shows.
    """
    figure, sizes = FIGURES[number], replace(sizes, figure=number)
    untrained = [] if inputs else [untrained_input(n, seed=sizes.seed) for n in figure.untrained]
    numbers, paragraphs = figure.measure(inputs or untrained, sizes)
    note = [_UNTRAINED] if untrained and figure.takes_inputs else []
    return RenderedFigure(
        figure.draw(numbers), numbers, [*note, *paragraphs], figure.check(numbers)
    )


def redraw(number: int, file: Path) -> None:
    """Draw the maps of a figure's JSON as PNG and SVG beside it, without its models.

    Raises:
        OptionError: the figure has no maps.
    """
    if number not in FIGURES or FIGURES[number].maps is None:
        raise OptionError(f"--redraw must be left out with figure {number}, which has no maps")
    save_picture(FIGURES[number].draw(read_numbers(file)), file.with_suffix(""))
