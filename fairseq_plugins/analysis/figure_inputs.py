"""Figures of the BERT paper, and their inputs: encodings, untrained or of a checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis import LENGTH
from fairseq_plugins.analysis.figure_files import Lines, Panel, draw_lines, draw_panels
from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.analysis.position_rows import build_plain, input_rows
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.absolute import (
    FairseqSinusoidal,
    LearnableSinusoidal,
    Learned,
    Sinusoidal,
)
from fairseq_plugins.encodings.frequencies import fairseq_frequencies, sinusoidal_frequencies
from fairseq_plugins.encodings.shaw import LearnableSinusoidalKeys, RelativeKeys, ShawKeys

Numbers = Mapping[str, Any]
APPENDIX_J = 100  # words of the paper's Figure 11
BERT_WIDTH, BERT_HEADS = 768, 12
# Kinds of position vectors.
LEARNED, LEARNED_SINUSOIDS, FIXED_SINUSOIDS = "learned", "learnable sinusoids", "fixed sinusoids"
_KINDS: dict[type, str] = {
    LearnableSinusoidal: LEARNED_SINUSOIDS,
    Learned: LEARNED,
    Sinusoidal: FIXED_SINUSOIDS,
    FairseqSinusoidal: FIXED_SINUSOIDS,
}


@dataclass(frozen=True)
class FigureInput:
    """An encoding, untrained or of a trained model."""

    label: str  # title of a panel
    inputs: PositionEncoding | None  # of token embeddings
    layer: PositionEncoding | None  # of the first layer's attention
    loaded: LoadedStack | None = None  # None for an untrained encoding

    def absolute(self, length: int) -> Tensor | None:
        """Return position vectors (T, C) of T = `length`, as they are added to zeros.

        None without an absolute encoding, or if these do not differ: one that multiplies or
        convolves words has no vectors of its own.
        """
        if self.inputs is None:
            return None
        rows = input_rows(self.inputs, length, seed=None)
        return None if (rows == rows[0]).all() else rows

    def absolute_kind(self) -> str:
        """Return the kind of the absolute vectors, such as `LEARNED`; "" for others or none."""
        parts = self.inputs.parts if self.inputs is not None else ()
        kinds = (kind for part in parts for cls, kind in _KINDS.items() if isinstance(part, cls))
        return next(kinds, "")

    def relative(self) -> Tensor | None:
        """Return the vectors of the offsets -k..k (2k + 1, D); None without relative vectors."""
        part = self._relative_keys()
        return None if part is None else part.key_vectors(torch.empty(())).detach().double().cpu()

    def relative_kind(self) -> str:
        """Return the kind of the relative vectors, such as `LEARNED`; "" for none."""
        part = self._relative_keys()
        if part is None:
            return ""
        if isinstance(part, ShawKeys):
            return LEARNED
        return LEARNED_SINUSOIDS if isinstance(part, LearnableSinusoidalKeys) else FIXED_SINUSOIDS

    def _relative_keys(self) -> RelativeKeys | None:
        parts = self.layer.parts if self.layer is not None else ()
        return next((part for part in parts if isinstance(part, RelativeKeys)), None)

    def frequencies(self) -> Tensor | None:
        """Return the frequencies of absolute sinusoids (C/2,), float64; None without any."""
        for part in self.inputs.parts if self.inputs is not None else ():
            if isinstance(part, LearnableSinusoidal):
                return part.frequencies.detach().double().cpu()
            if isinstance(part, Sinusoidal):
                return sinusoidal_frequencies(part.context.embed_dim)
            if isinstance(part, FairseqSinusoidal):
                return fairseq_frequencies(part.context.embed_dim)
        return None


def untrained_input(name: str, *, seed: int = 1) -> FigureInput:
    """Build an untrained encoding with the sizes of BERT-base.

    Raises:
        ValueError: an unknown name.
    """
    built = build_plain(name, width=BERT_WIDTH, heads=BERT_HEADS, longest=512, seed=seed)
    return FigureInput(name, built.inputs[0], built.layers[0])


def trained(label: str, loaded: LoadedStack) -> FigureInput:
    """Make the input of a loaded model."""
    return FigureInput(label, loaded.encoding(0), loaded.encoding(1), loaded)


@dataclass(frozen=True)
class FigureSizes:
    """Sizes of a figure's inputs."""

    length: int | None = None  # positions; None: 128, or the least of the models' maxima if less
    words: int = APPENDIX_J  # sentences of a probe
    seed: int = 1  # of the words
    figure: int = 0  # its number, for messages

    def require(self, inputs: list[Any], needed: str) -> list[Any]:
        """Return the inputs of the figure; raise OptionError if there are none."""
        if not inputs:
            raise OptionError(f"figure {self.figure} needs {needed}, which no input has")
        return inputs


def common_length(inputs: Sequence[FigureInput], sizes: FigureSizes) -> int:
    """Return the number of positions of all panels: measures of other lengths do not compare.

    Raises:
        OptionError: a model's longest input is shorter than `sizes.length`.
    """
    longest = {one.label: one.loaded.max_length for one in inputs if one.loaded is not None}
    if sizes.length is None:
        return min([LENGTH, *longest.values()])
    for label, most in longest.items():
        if sizes.length > most:
            raise OptionError(
                f"--length must be at most {most}, the longest input of {label}, but is "
                f"{sizes.length}"
            )
    return sizes.length


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, which is drawn and checked from the numbers of its inputs."""

    title: str
    paper: str  # the paper's observation
    # Returns the numbers of inputs, and paragraphs and tables about them.
    measure: Callable[[Sequence[FigureInput], FigureSizes], tuple[Numbers, list[str]]]
    maps: Callable[[Numbers], list[Panel]] | None = None  # None for a figure of lines
    lines: Callable[[Numbers], Lines] = lambda numbers: ()
    check: Callable[[Numbers], str] = lambda numbers: ""  # observations that hold, or "" if open
    untrained: tuple[str, ...] = ()  # encodings without a checkpoint; () if it needs one
    takes_inputs: bool = True  # whether checkpoints change the figure

    def draw(self, numbers: Numbers) -> Any:
        """Draw the figure; returns matplotlib's figure."""
        return draw_panels(self.maps(numbers)) if self.maps else draw_lines(self.lines(numbers))
