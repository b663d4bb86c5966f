"""Inputs of figures: an encoding as defined, or as a checkpoint has learned it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.analysis.position_rows import build_plain, input_rows
from fairseq_plugins.analysis.readers import Reader, load_reader
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.absolute import LearnableSinusoidal, Learned, Sinusoidal
from fairseq_plugins.encodings.frequencies import geometric
from fairseq_plugins.encodings.shaw import LearnableSinusoidalKeys, RelativeKeys, ShawKeys
from fairseq_plugins.modules.loading import choose_device

BERT_WIDTH, BERT_HEADS = 768, 12
# Kinds of vectors.
LEARNED, LEARNED_SINUSOIDS, FIXED_SINUSOIDS = "learned", "learnable sinusoids", "fixed sinusoids"


@dataclass(frozen=True)
class Subject:
    """An encoding, or a model with it.

    Attributes:
        label: for a panel.
        inputs: what acts on the token embeddings, or None.
        layer: what the first layer's attention uses, or None.
        reader: the model; None of an encoding that is not trained.
    """

    label: str
    inputs: PositionEncoding | None
    layer: PositionEncoding | None
    reader: Reader | None = None

    def absolute(self, length: int) -> Tensor | None:
        """The vectors of positions (T, C), or None without an absolute encoding.

        T is `length`, or what the model reads if that is less.
        """
        if self.inputs is None:
            return None
        longest = length if self.reader is None else min(length, self.reader.reach)
        return input_rows(self.inputs, longest, seed=None)

    def absolute_kind(self) -> str:
        """Return the kind of its absolute vectors, as `LEARNED`; "" for others or without any."""
        for part in self.inputs.parts if self.inputs is not None else ():
            if isinstance(part, LearnableSinusoidal):
                return LEARNED_SINUSOIDS
            if isinstance(part, Learned | Sinusoidal):
                return LEARNED if isinstance(part, Learned) else FIXED_SINUSOIDS
        return ""

    def relative(self) -> Tensor | None:
        """The vectors of the offsets -k..k (2k + 1, D), or None without relative vectors."""
        part = self._relative_keys()
        return None if part is None else part.key_vectors(torch.empty(())).detach().double().cpu()

    def relative_kind(self) -> str:
        """Return the kind of its relative vectors: `LEARNED` and so on, "" without any."""
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
        """Return the frequencies of its absolute sinusoids (C/2,), float64; None without any."""
        for part in self.inputs.parts if self.inputs is not None else ():
            if isinstance(part, LearnableSinusoidal):
                return part.frequencies.detach().double().cpu()
            if isinstance(part, Sinusoidal):
                width = part.context.embed_dim
                return geometric(width // 2, width)
        return None


def untrained(name: str, *, seed: int = 1) -> Subject:
    """An encoding as it begins in a model as large as BERT-base.

    Raises:
        ValueError: an unknown name.
    """
    built = build_plain(name, width=BERT_WIDTH, heads=BERT_HEADS, longest=512, seed=seed)
    return Subject(name, built.inputs[0], built.layers[0])


def trained(label: str, reader: Reader) -> Subject:
    """A model that is built already."""
    attention = reader.stack.layers[0].self_attn.attention
    return Subject(label, reader.stack.position_embedding, attention.encoding, reader)


def load_subject(label: str, checkpoint: Path, data: Path, *, cpu: bool = False) -> Subject:
    """A checkpoint of any of our models, in float64.

    Raises:
        ValueError: as `load_reader`.
    """
    reader = load_reader(checkpoint, data)
    reader.model.double().to(choose_device(cpu=cpu))
    return trained(label, reader)


def require(found: list[Any], figure: int, what: str) -> list[Any]:
    """What is there.

    Raises:
        OptionError: nothing is.
    """
    if not found:
        raise OptionError(f"figure {figure} needs {what}, which none of what is given has")
    return found


@dataclass(frozen=True)
class Sizes:
    """Sizes of a figure's inputs.

    Attributes:
        length: positions; None for 128, or what a model reads if that is less.
        words: sentences of the probes; None for as many as the paper has.
        seed: of the words.
    """

    length: int | None = None
    words: int | None = None
    seed: int = 1
