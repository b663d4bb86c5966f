"""Tiny language models built as the task builds them, without a command or data."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from torch import Tensor, nn

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.models.pe_transformer_lm import PETransformerLM, PETransformerLMConfig

WIDTH, HEADS, LAYERS, LONGEST = 32, 4, 2, 64

# Every encoding under every attention that can have it, as (attention, encoding).
PAIRS = [
    (attention, name)
    for attention, cls in ATTENTIONS.items()
    for name, entry in ENCODINGS.items()
    if not entry.hooks - cls.supported_hooks and not entry.refusal(causal=True)
]


def mechanism(pair: tuple[str, str]) -> tuple[str, frozenset[str]]:
    """A pair's attention and the hooks of its encoding."""
    return pair[0], ENCODINGS[pair[1]].hooks


TINY: dict[str, Any] = {
    "decoder_layers": LAYERS,
    "decoder_embed_dim": WIDTH,
    "decoder_input_dim": WIDTH,
    "decoder_output_dim": WIDTH,
    "decoder_ffn_embed_dim": WIDTH,
    "decoder_attention_heads": HEADS,
    "share_decoder_input_output_embed": True,
    "dropout": 0.0,
    "tokens_per_sample": LONGEST,
    "max_target_positions": LONGEST,
    "add_bos_token": False,
    "tpu": False,
}


def make_dictionary() -> Dictionary:
    dictionary = Dictionary()
    for i in range(30):
        dictionary.add_symbol(f"w{i}")
    return dictionary


DICTIONARY = make_dictionary()
PAD, FIRST_WORD = DICTIONARY.pad(), DICTIONARY.nspecial
TASK = SimpleNamespace(source_dictionary=DICTIONARY, target_dictionary=DICTIONARY)


def build_lm(attention: str = "vanilla", encoding: str = "base", **options: Any) -> PETransformerLM:
    """``pe_transformer_lm`` in evaluation mode, with large learned tables."""
    names = {"attention_type": attention, "position_encoding": encoding}
    config = configure(PETransformerLMConfig(), {**TINY, **names, **options})
    model = PETransformerLM.build_model(config, TASK).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Learned angles stay: at random ones a denominator can come near zero, where float32
            # rounding grows past what these tests are about.
            inside = ".encoding." in name or "position_embedding" in name
            if inside and not name.endswith("theta"):
                parameter.normal_()
    return model


def build_fairseq_lm(**options: Any) -> TransformerLanguageModel:
    """fairseq's own ``transformer_lm``."""
    config = configure(TransformerLanguageModelConfig(), {**TINY, **options})
    return TransformerLanguageModel.build_model(config, TASK).eval()


def configure(config: Any, options: dict[str, Any]) -> Any:
    for name, value in options.items():
        assert name in config.__dataclass_fields__, name
        setattr(config, name, value)
    return config


def random_tokens(batch: int, length: int) -> Tensor:
    """Words without padding: (B, T)."""
    return torch.randint(FIRST_WORD, len(DICTIONARY), (batch, length))


def pad_rows(tokens: Tensor, lengths: list[int], *, left: bool) -> Tensor:
    """The first ``lengths`` tokens of each row, padded on one side."""
    padded = torch.full_like(tokens, PAD)
    for row, length in enumerate(lengths):
        columns = slice(tokens.size(1) - length, None) if left else slice(length)
        padded[row, columns] = tokens[row, :length]
    return padded


def without_noise(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the same modules without noise: fairseq adds one wherever it quantises."""
    return {**options, "quant_noise_pq": 1e-9} if "quant_noise_pq" in options else {}


def check_noise_of_training(
    noisy: nn.Module, plain: nn.Module, run: Callable[[nn.Module], Tensor]
) -> None:
    """What an option adds in training comes from PyTorch's generator and is absent afterwards.

    Args:
        noisy: a model with the option.
        plain: the same model without it; gets the other one's weights.
        run: the output of a model.
    """
    plain.load_state_dict(noisy.state_dict())
    with torch.no_grad():
        assert torch.equal(run(noisy.eval()), run(plain.eval()))
    outputs = []
    for seed in (0, *range(8)):
        used = copy.deepcopy(noisy).train()  # fairseq writes noise of quantisation into weights
        torch.manual_seed(seed)
        outputs.append(run(used))
    assert torch.equal(outputs[0], outputs[1])
    assert not all(torch.equal(output, outputs[0]) for output in outputs)
    outputs[-1].square().sum().backward()
    gradients = [p.grad for p in used.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().sum() > 0 for gradient in gradients)


def each_step(
    model: PETransformerLM, tokens: Tensor, state: dict[str, Any], start: int = 0
) -> Tensor:
    """Logits (B, T - start, V) of a decoding loop that has already seen ``start`` tokens."""
    decode: Callable[..., tuple[Tensor, Any]] = model.decoder
    steps = range(start + 1, tokens.size(1) + 1)
    logits = [decode(tokens[:, :end], incremental_state=state)[0] for end in steps]
    return torch.cat(logits, dim=1)
