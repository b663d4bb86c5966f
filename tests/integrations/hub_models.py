"""Small random models of transformers, and helpers of their tests."""

import warnings
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="needs transformers, whose models these are")
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForCausalLM,
    RobertaForMaskedLM,
)
from transformers.utils import logging

from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.encodings.base import LOGIT_HOOKS
from fairseq_plugins.integrations.huggingface import replace_position_encoding

logging.disable_progress_bar()

VOCAB, PAD, WIDTH, HEADS, LONGEST = 23, 1, 16, 2, 32
_SIZES = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_attention_heads": HEADS}
_COMMON = {**_SIZES, "num_hidden_layers": 2, "intermediate_size": 20, "pad_token_id": PAD}
_SPECIAL = {"bos_token_id": 0, "eos_token_id": 2}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_ENCODER = {**_COMMON, **_SPECIAL, **_NO_DROPOUT, "type_vocab_size": 2}

FAMILIES = ("llama", "gpt_neox", "gpt2", "bert", "roberta")
WITH_ROPE = ("mistral", "qwen2", "qwen3", "gemma", "phi")
ENCODERS = ("distilbert", "electra")
CAUSAL = ("llama", "gpt_neox", "gpt2")


def make(family: str, **options: object) -> PreTrainedModel:
    """A model in evaluation; ``options`` are its configuration's."""
    torch.manual_seed(5)
    if family == "llama":
        config = {**_COMMON, **_SPECIAL, "max_position_embeddings": LONGEST}
        model = LlamaForCausalLM(LlamaConfig(**{**config, **options}))
    elif family == "gpt_neox":
        config = {**_COMMON, **_SPECIAL, "max_position_embeddings": LONGEST}
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**{**config, **options}))
    elif family == "gpt2":
        config = {"vocab_size": VOCAB, "n_embd": WIDTH, "n_head": HEADS, "n_layer": 2}
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config |= {"n_positions": LONGEST, "pad_token_id": PAD, **_SPECIAL, **dropout}
        model = GPT2LMHeadModel(GPT2Config(**{**config, **options}))
    elif family in WITH_ROPE:
        config = {**_COMMON, **_SPECIAL, "max_position_embeddings": LONGEST, "head_dim": 8}
        config |= {"num_key_value_heads": 1, "sliding_window": None}
        model = _auto(AutoModelForCausalLM, family, {**config, **options})
    elif family in ENCODERS:
        config = {**_ENCODER, "max_position_embeddings": LONGEST, "embedding_size": WIDTH}
        config |= {"dropout": 0.0, "attention_dropout": 0.0, "hidden_dim": 20}
        model = _auto(AutoModelForMaskedLM, family, {**config, **options})
    elif family == "bert":
        config = {**_ENCODER, "max_position_embeddings": LONGEST, **options}
        kind = BertLMHeadModel if options.get("is_decoder") else BertForMaskedLM
        model = kind(BertConfig(**config))
    else:
        config = {**_ENCODER, "max_position_embeddings": LONGEST + PAD + 1}
        kind = RobertaForCausalLM if options.get("is_decoder") else RobertaForMaskedLM
        model = kind(RobertaConfig(**{**config, **options}))
    # Larger than they begin, or positions would hardly show in the logits.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8.0)
    return model.eval()


def _auto(auto: type, family: str, options: Mapping[str, object]) -> PreTrainedModel:
    """A model by the Auto classes; the configuration keeps what its class has."""
    kind = CONFIG_MAPPING[family]
    known = kind()
    return auto.from_config(kind(**{k: v for k, v in options.items() if hasattr(known, k)}))


def swap(
    model: PreTrainedModel, name: str, attention: str = "vanilla", **options: object
) -> PreTrainedModel:
    torch.manual_seed(6)
    return replace_position_encoding(model, name, attention=attention, **options)


def words(batch: int = 2, length: int = 9) -> Tensor:
    """Tokens (B, T), no padding or special ones among them."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, VOCAB, (batch, length), generator=generator)


def padded(tokens: Tensor, padding: int, side: str) -> dict[str, Tensor]:
    """The second row is the first's, without its first ``padding`` tokens, padded at ``side``."""
    row = tokens[:1, padding:]
    fill = torch.full((1, padding), PAD)
    parts = (fill, row) if side == "left" else (row, fill)
    rows = torch.cat((tokens[:1], torch.cat(parts, 1)))
    return {"input_ids": rows, "attention_mask": (rows != PAD).long()}


@torch.no_grad()
def logits(model: PreTrainedModel, seed: int = 3, **inputs: object) -> Tensor:
    """(B, T, V), with the same draws of stochastic encodings every time."""
    torch.manual_seed(seed)
    return model(**inputs).logits


def fits(name: str, attention: str, *, causal: bool) -> bool:
    """Whether the attention, in this direction, can have the encoding."""
    if name == "deberta_emd_queries":  # runs a layer twice, as models of transformers do not
        return False
    entry = ENCODINGS[name]
    has_hooks = attention == "vanilla" or not entry.hooks & LOGIT_HOOKS
    return has_hooks and entry.refusal(causal=causal) is None


def generate(model: PreTrainedModel, inputs: Mapping[str, Tensor], **options: object) -> Tensor:
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": PAD, "eos_token_id": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        return model.generate(**inputs, **{**settings, **options})
