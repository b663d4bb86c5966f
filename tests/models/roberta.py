"""Tiny RoBERTa models built as the task builds them, without a command or data."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import (
    ENCODINGS,
    PositionEncoding,
)
from fairseq_plugins.models.pe_roberta import PERoberta, PERobertaConfig
from tests.models.helpers import (
    DICTIONARY,
    HEADS,
    LAYERS,
    LONGEST,
    PAD,
    WIDTH,
)
from tests.models.helpers import random_tokens as words

REFUSED = [
    (attention, name)
    for attention, cls in ATTENTIONS.items()
    for name, entry in ENCODINGS.items()
    if entry.hooks - cls.supported_hooks or entry.refusal(causal=False)
]
PAIRS = [
    (attention, name)
    for attention in ATTENTIONS
    for name in ENCODINGS
    if (attention, name) not in REFUSED
]
every_pair = pytest.mark.parametrize(("attention", "encoding"), PAIRS)

TINY: dict[str, Any] = {
    "encoder_layers": LAYERS,
    "encoder_embed_dim": WIDTH,
    "encoder_ffn_embed_dim": WIDTH,
    "encoder_attention_heads": HEADS,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
_TASK = SimpleNamespace(
    cfg=SimpleNamespace(tokens_per_sample=LONGEST), source_dictionary=DICTIONARY
)

# fairseq's own options, each of which acts outside or around the attention.
FAIRSEQ_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre_norm": {"encoder_normalize_before": True, "layernorm_embedding": False},
    "sinusoidal": {"encoder_learned_pos": False},
    "scaled": {"no_scale_embedding": False, "activation_fn": "relu"},
    "untied": {"untie_weights_roberta": True},
}


def build(attention: str = "vanilla", encoding: str = "base", **options: Any) -> PERoberta:
    """In evaluation mode."""
    config = PERobertaConfig(attention_type=attention, position_encoding=encoding)
    for name, value in {**TINY, **options}.items():
        assert name in config.__dataclass_fields__, name
        setattr(config, name, value)
    return PERoberta.build_model(config, _TASK).eval()


def build_fairseq(**options: Any) -> RobertaModel:
    """fairseq's own ``roberta``."""
    unset = {"mha_reg_scale_factor": 0.0, "ffn_reg_scale_factor": 0.0, "max_positions": LONGEST}
    return RobertaModel.build_model(Namespace(**{**TINY, **unset, **options}), _TASK).eval()


def random_tokens(batch: int, length: int) -> torch.Tensor:
    """<s>, then words: (B, T)."""
    tokens = words(batch, length)
    tokens[:, 0] = DICTIONARY.bos()
    return tokens


def enlarge(model: PERoberta) -> PERoberta:
    """Encodings with large learned tables."""
    with torch.no_grad():
        for encoding in {m for m in model.modules() if isinstance(m, PositionEncoding)}:
            for parameter in encoding.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


THEIRS = "encoder.sentence_encoder.embed_positions.weight"
OURS = "encoder.sentence_encoder.position_embedding.weight"


def as_ours(state: dict[str, Any]) -> dict[str, Any]:
    """fairseq's names and rows as they are here, for a learned table."""
    table = {OURS: state[THEIRS][PAD + 1 :]} if THEIRS in state else {}
    return {**{name: value for name, value in state.items() if name != THEIRS}, **table}
