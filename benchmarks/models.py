"""Models and their training steps, built as by fairseq's tasks, without data."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import Embedding, TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.reference import check_attention
from benchmarks.runner import Case
from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.models.pe_transformer_lm import PETransformerLM, PETransformerLMConfig
from fairseq_plugins.modules.encoder import PositionalEncoder
from fairseq_plugins.modules.options import PositionEncodingConfig
from fairseq_plugins.runner.rehearsal import numbered_dictionary

Step = Callable[[], None]
FAIRSEQ = "transformer_lm"


def random_tokens(settings: Settings, length: int, device: torch.device) -> Tensor:
    """Draw words without padding: (B, length)."""
    first = Dictionary().nspecial
    shape = (settings["batch"], length)
    return torch.randint(first, settings["dictionary"], shape, device=device)


def make_step(model: nn.Module, loss: Callable[[], Tensor], context: Context) -> Step:
    """Make a step of forward, backward and an update by Adam; in mixed precision on a GPU."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(context.device.type, torch.bfloat16, enabled=context.name == "gpu"):
            value = loss()
        value.backward()
        optimizer.step()

    return step


def language_model_step(
    settings: Settings, length: int, context: Context, attention: str | None
) -> Step:
    """Make a step of ``pe_transformer_lm``, or of fairseq's own for `attention` None."""
    dictionary = numbered_dictionary(settings["dictionary"])
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    width: int = settings["width"]
    options: dict[str, Any] = {
        "decoder_layers": settings["layers"],
        **dict.fromkeys(("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim"), width),
        "decoder_ffn_embed_dim": settings["ffn"],
        "decoder_attention_heads": settings["heads"],
        "share_decoder_input_output_embed": True,
        "dropout": 0.0,
        "tokens_per_sample": length,
        "max_target_positions": length,
        "add_bos_token": False,
        "tpu": False,
    }
    if attention is None:
        own = TransformerLanguageModel.build_model(TransformerLanguageModelConfig(**options), task)
    else:
        options |= {"attention_type": attention, "position_encoding": "base"}
        own = PETransformerLM.build_model(PETransformerLMConfig(**options), task)
    model = own.to(context.device).train()
    tokens = random_tokens(settings, length, context.device)
    targets = random_tokens(settings, length, context.device)

    def loss() -> Tensor:
        logits, _ = model(tokens)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return make_step(model, loss, context)


def masked_language_model_step(
    settings: Settings, context: Context, attention: str, encoding: str
) -> Step:
    """Make a step of the bidirectional encoder, which predicts 15 % of the tokens.

    Raises:
        IncompatibleEncodingError: the encoding does not support the attention.
        ValueError: an unknown encoding.
    """
    config = TransformerConfig()
    stack = config.encoder
    stack.layers, stack.embed_dim = settings["layers"], settings["width"]
    stack.ffn_embed_dim, stack.attention_heads = settings["ffn"], settings["heads"]
    config.max_source_positions, config.dropout = settings["length"], 0.0
    dictionary = numbered_dictionary(settings["dictionary"])
    embedding = Embedding(len(dictionary), settings["width"], dictionary.pad())
    options = PositionEncodingConfig(attention_type=attention, position_encoding=encoding)
    options.linear_normalizer = settings["linear_normalizer"]
    model = PositionalEncoder(config, options, dictionary, embedding).to(context.device).train()
    tokens = random_tokens(settings, settings["length"], context.device)
    hidden = torch.rand(tokens.shape, device=context.device) < 0.15
    hidden[:, 0] = True
    # Positions are found once, as by a data loader, since counting them waits for the device.
    masked = hidden.T.flatten().nonzero().squeeze(1)
    targets = tokens.T.flatten()[masked]
    given = tokens.masked_fill(hidden, dictionary.unk())

    def loss() -> Tensor:
        features = model(given)["encoder_out"][0].flatten(0, 1)  # (T B, C)
        logits = F.linear(features[masked], embedding.weight)
        return F.cross_entropy(logits.float(), targets)

    return make_step(model, loss, context)


def language_model(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Forward, backward and update, relative to fairseq's ``transformer_lm``."""
    for attention in ATTENTIONS:
        check_attention(attention, context)
    for length in settings["lengths"]:
        fairseq = f"{FAIRSEQ}@{length}"
        steps = {fairseq: language_model_step(settings, length, context, None)}
        for attention in ATTENTIONS:
            step = language_model_step(settings, length, context, attention)
            steps[f"{attention}@{length}"] = step
        ratios = {f"{a}/{fairseq}": (f"{a}@{length}", fairseq) for a in ATTENTIONS}
        yield Case(steps, ratios)
