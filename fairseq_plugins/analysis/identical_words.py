"""Identical word probing: attention to sentences that repeat one word, decided by positions alone.

"On Position Embeddings in BERT", Section 4.2.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from torch import Tensor, nn

import fairseq_plugins.registration  # noqa: F401  (what checkpoints name)
from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary, check_vocabulary
from fairseq_plugins.models.pe_roberta import PERoberta
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import build_trained, choose_device, read_trained

BATCH_SIZE = 20
TASKS = ("masked_lm", "sentence_prediction", "squad")  # of which a pe_roberta may be


@dataclass(frozen=True)
class Probe:
    """What was seen: `weights` (T, T), float64, mean over heads and over `words` sentences."""

    weights: Tensor
    words: int


def probe(
    checkpoint: Path,
    data: Path,
    *,
    words: int = WORDS,
    length: int | None = None,
    seed: int = 1,
    cpu: bool = False,
) -> Probe:
    """Probe a checkpoint of ``pe_roberta`` with softmax attention, in float64.

    data: a folder with the dictionary that it was trained with. words: how many are drawn; all
    where there are fewer. length: of the sentences with both special tokens; `LENGTH`, or what the
    model can read if that is less. seed: of the words, and of encodings that draw. cpu: even where
    there is a GPU.

    Raises:
        ValueError: a checkpoint that is missing, damaged, of another model or dictionary, or whose
            attention has no weights; or a length that the model cannot read.
    """
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol(MASK)
    state = read_trained(checkpoint, models=[ROBERTA], tasks=TASKS)
    vocabulary = Vocabulary(data / "dict.txt", dictionary.symbols, ROBERTA_TABLE)
    check_vocabulary(checkpoint, state, vocabulary)
    model, _, _ = build_trained(checkpoint, state, data)
    reach = model.max_positions()
    length = min(LENGTH, reach) if length is None else length
    if not 4 <= length <= reach:
        raise OptionError(
            f"`length` must be at least 4 and at most {reach}, which the model can read, "
            f"but is {length} instead."
        )
    tokens = repeat_words(dictionary, draw_words(dictionary, words, seed), length)
    utils.set_torch_seed(seed)  # after loading, which seeds the draws of an encoding too
    device = choose_device(cpu=cpu)
    model = model.double().to(device)
    total = torch.zeros(length, length, dtype=torch.float64)
    for batch in tokens.split(BATCH_SIZE):
        total += first_layer_weights(model, batch.to(device)).sum(0).cpu()
    return Probe(total / len(tokens), len(tokens))


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


def repeat_words(dictionary: Dictionary, words: Tensor, length: int) -> Tensor:
    """For words (N,) the sentences (N, T): one word T - 2 times between <s> and </s>."""
    sentences = words.unsqueeze(1).repeat(1, length)
    sentences[:, 0], sentences[:, -1] = dictionary.bos(), dictionary.eos()
    return sentences


@torch.no_grad()
def first_layer_weights(model: PERoberta, tokens: Tensor) -> Tensor:
    """The attention weights (B, T, T) of the first layer for tokens (B, T), mean over its heads.

    Raises:
        ValueError: an attention that makes none.
    """
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    if not isinstance(attention.attention, SoftmaxAttention):
        raise ValueError(
            f"`attention_type` must be 'vanilla', but is {attention.attention.name!r}: only "
            "softmax attention has a weight for each pair of words."
        )
    found: list[Tensor] = []

    def ask(module: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**options, "need_weights": True}

    def keep(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
        found.append(output[1])

    hooks = (
        attention.register_forward_pre_hook(ask, with_kwargs=True),
        attention.register_forward_hook(keep),
    )
    try:
        model.encoder(tokens, features_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    (weights,) = found
    return weights
