"""Identical word probing: attention to sentences that repeat one word, decided by positions alone.

"On Position Embeddings in BERT", Section 4.2; Appendix I has other models than BERT, Appendix J
the scores before the softmax.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.analysis.readers import Reader, load_reader
from fairseq_plugins.analysis.softmax_inputs import softmax_of
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.modules.loading import choose_device

BATCH_SIZE = 20


@dataclass(frozen=True)
class Probe:
    """Attention over identical words: means over heads and sentences, in float64.

    Attributes:
        weights: (T, T), after the softmax.
        scores: (T, T), before it; -inf where a causal model hides a key.
        words: sentences, each of another word.
        reader: the model.
    """

    weights: Tensor
    scores: Tensor
    words: int
    reader: Reader


def probe(
    checkpoint: Path,
    data: Path,
    *,
    words: int = WORDS,
    length: int | None = None,
    seed: int = 1,
    cpu: bool = False,
) -> Probe:
    """Probe a checkpoint with softmax attention: of a masked, a causal or a translation model.

    Args:
        checkpoint: its file.
        data: a folder with the dictionary that it was trained with.
        words: how many are drawn; all where there are fewer.
        length: of the sentences with their special tokens; `LENGTH`, or what the model can read
            if that is less.
        seed: of the words, and of encodings that draw.
        cpu: even where there is a GPU.

    Raises:
        ValueError: a checkpoint that is missing, damaged, of another model or dictionary, or whose
            attention has no weights; or a length that the model cannot read.
    """
    reader = load_reader(checkpoint, data)
    reader.model.double().to(choose_device(cpu=cpu))
    return probe_reader(reader, words=words, length=length, seed=seed)


def probe_reader(
    reader: Reader, *, words: int = WORDS, length: int | None = None, seed: int = 1
) -> Probe:
    """Probe a model that is built already, on the device and in the precision that it has.

    Args:
        reader: the model.
        words: as of `probe`.
        length: likewise.
        seed: likewise.

    Raises:
        ValueError: an attention without weights, or a length that the model cannot read.
    """
    length = min(LENGTH, reader.reach) if length is None else length
    if not 4 <= length <= reader.reach:
        raise OptionError(
            f"`length` must be at least 4 and at most {reader.reach}, which the model can read, "
            f"but is {length} instead."
        )
    drawn = draw_words(reader.dictionary, words, seed)
    tokens = repeat_words(reader.dictionary, drawn, length, reader.begins, reader.ends)
    utils.set_torch_seed(seed)  # after loading, which seeds the draws of an encoding too
    device = next(reader.model.parameters()).device
    weights, scores = (torch.zeros(length, length, dtype=torch.float64) for _ in range(2))
    for batch in tokens.split(BATCH_SIZE):
        seen = look_at_first_layer(reader, batch.to(device))
        weights += seen.weights.mean(1).sum(0).double().cpu()
        scores += seen.scores.mean(1).sum(0).double().cpu()
    return Probe(weights / len(tokens), scores / len(tokens), len(tokens), reader)


def draw_words(dictionary: Dictionary, count: int, seed: int) -> Tensor:
    """Words that occur in the training data, each at most once: (N,) with N at most `count`.

    Raises:
        ValueError: a `count` under 1, or a dictionary in which no word has a count.
    """
    if count < 1:
        raise OptionError(f"`words` must be at least 1, but is {count} instead.")
    known = [
        i
        for i in range(dictionary.nspecial, len(dictionary))
        if dictionary.count[i] > 0 and dictionary[i] != MASK
    ]
    if not known:
        raise ValueError("`dictionary` must count the words of its text, but has counts of 0 only.")
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(known)[torch.randperm(len(known), generator=generator)[:count]]


def repeat_words(
    dictionary: Dictionary, words: Tensor, length: int, begins: int = 1, ends: int = 1
) -> Tensor:
    """Make for words (N,) sentences (N, T) of one word each, with <s> and </s> where needed.

    Args:
        dictionary: of the words.
        words: their numbers.
        length: T.
        begins: how many <s> there are, 0 or 1.
        ends: how many </s>.
    """
    sentences = words.unsqueeze(1).repeat(1, length)
    sentences[:, :begins] = dictionary.bos()
    sentences[:, length - ends :] = dictionary.eos()
    return sentences


@dataclass(frozen=True)
class Seen:
    """Attention of the first layer's heads over tokens (B, T).

    Attributes:
        weights: (B, H, T, T), after the softmax.
        scores: (B, H, T, T), what the softmax is of: scaled, with all that positions add; -inf
            where a key is hidden.
        inputs: (B, T, C), what queries and keys are projected from.
        attention: the first layer's, with its projections.
    """

    weights: Tensor
    scores: Tensor
    inputs: Tensor
    attention: Any


@torch.no_grad()
def look_at_first_layer(reader: Reader, tokens: Tensor) -> Seen:
    """Return the output of the first layer's attention for tokens (B, T).

    Raises:
        ValueError: an attention that makes no weights.
    """
    attention = reader.stack.layers[0].self_attn
    if not isinstance(attention.attention, SoftmaxAttention):
        raise ValueError(
            f"`attention_type` must be 'vanilla', but is {attention.attention.name!r}: only "
            "softmax attention has a weight for each pair of words."
        )
    asked: list[Tensor] = []
    found: list[tuple[Tensor, Tensor]] = []  # scores and weights

    def ask(module: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        query = options["query"] if "query" in options else args[0]
        asked.append(query.transpose(0, 1))
        return args, {**options, "need_weights": True}

    hook = attention.register_forward_pre_hook(ask, with_kwargs=True)
    with softmax_of(attention.attention, found):
        try:
            reader.read(tokens)
        finally:
            hook.remove()
    (inputs,), ((scores, weights),) = asked, found
    return Seen(weights, scores, inputs, attention)
