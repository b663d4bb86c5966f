"""Identical word probing: attention over sentences that repeat one word, set by positions alone.

"On Position Embeddings in BERT", Section 4.2; Appendix I has other models than BERT, Appendix J
the scores before the softmax.
"""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.analysis.softmax_inputs import RecordedSoftmax, recorded_heads
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import OptionError

BATCH_SIZE = 20


@dataclass(frozen=True)
class Probe:
    """Attention over identical words: means over heads and sentences, in float64."""

    weights: Tensor  # (T, T), after the softmax
    scores: Tensor  # (T, T), before the softmax; -inf where a causal model hides a key
    words: int  # number of sentences, each of a different word
    loaded: LoadedStack


def probe(
    loaded: LoadedStack, *, words: int = WORDS, length: int | None = None, seed: int = 1
) -> Probe:
    """Probe a masked, a causal or a translation model with softmax attention.

    It is probed on its device and in its precision.

    Args:
        loaded: the model.
        words: how many words to draw, at most all.
        length: tokens of a sentence, special tokens included; at most the model's maximum, and by
            default `LENGTH`.
        seed: seed of the words and of random encodings.

    Raises:
        ValueError: an attention without weights, or a `length` above the model's maximum.
    """
    length = min(LENGTH, loaded.max_length) if length is None else length
    if not 4 <= length <= loaded.max_length:
        raise OptionError(
            f"`length` must be at least 4 and at most the model's {loaded.max_length}, but is "
            f"{length} instead."
        )
    drawn = draw_words(loaded.dictionary, words, seed)
    tokens = repeat_words(loaded.dictionary, drawn, length, loaded.num_bos, loaded.num_eos)
    utils.set_torch_seed(seed)  # after loading, which sets a seed too
    device = next(loaded.model.parameters()).device
    weights, scores = (torch.zeros(length, length, dtype=torch.float64) for _ in range(2))
    for batch in tokens.split(BATCH_SIZE):
        layer = first_layer_attention(loaded, batch.to(device))
        weights += layer.weights.mean(1).sum(0).double().cpu()
        scores += layer.scores.mean(1).sum(0).double().cpu()
    return Probe(weights / len(tokens), scores / len(tokens), len(tokens), loaded)


def draw_words(dictionary: Dictionary, count: int, seed: int) -> Tensor:
    """Draw different words of the training data: (N,) with N at most `count`.

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
    dictionary: Dictionary, words: Tensor, length: int, num_bos: int = 1, num_eos: int = 1
) -> Tensor:
    """Make sentences (N, T) that each repeat a word, with <s> and </s>.

    Args:
        dictionary: the words' dictionary.
        words: (N,) token ids.
        length: T.
        num_bos: number of leading <s>, 0 or 1.
        num_eos: number of trailing </s>.
    """
    sentences = words.unsqueeze(1).repeat(1, length)
    sentences[:, :num_bos] = dictionary.bos()
    sentences[:, length - num_eos :] = dictionary.eos()
    return sentences


@dataclass(frozen=True)
class FirstLayerAttention:
    """Attention of the first layer's heads over tokens (B, T)."""

    weights: Tensor  # (B, H, T, T), after the softmax
    scores: Tensor  # (B, H, T, T), before it: scaled, with all terms of the encoding; -inf: hidden
    inputs: Tensor  # (B, T, C), of the projections of queries and keys
    attention: Any  # the first layer's attention module


class _FirstLayerDone(Exception):
    """Exception that ends the pass after the first layer's attention."""


@torch.no_grad()
def first_layer_attention(loaded: LoadedStack, tokens: Tensor) -> FirstLayerAttention:
    """Run tokens (B, T) and return the first layer's attention.

    Raises:
        ValueError: an attention without weights.
    """
    attention = loaded.softmax_attentions()[0]

    def stop(*_: Any) -> None:
        raise _FirstLayerDone  # the other layers would take most of the time

    with RecordedSoftmax() as recorded, recorded_heads([attention]) as heads:
        hook = attention.register_forward_hook(stop)
        try:
            loaded.run(tokens)
        except _FirstLayerDone:
            pass
        finally:
            hook.remove()
    (inputs, _), (scores, weights) = heads[attention], recorded.found[-1]
    return FirstLayerAttention(weights, scores, inputs, attention)
