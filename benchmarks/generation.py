"""Generation by a model of Hugging Face: a replaced position encoding against the model's own."""

from collections.abc import Callable, Iterator
from typing import Literal

import torch

from benchmarks.context import Context, Settings
from benchmarks.record import Found
from benchmarks.reference import compare
from benchmarks.runner import Case
from fairseq_plugins.common.extras import install_command, is_installed

OWN = "own"


def generation(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds per generated token, and ratios to the model with its own RoPE."""
    if not is_installed("transformers"):
        found.skipped[OWN] = f"transformers is not installed: {install_command('hub')}"
        return
    from transformers import LlamaConfig, LlamaForCausalLM

    from fairseq_plugins.integrations.huggingface import own_rotation, replace_position_encoding

    prompt, new = settings["prompt"], settings["tokens"]
    config = LlamaConfig(
        num_hidden_layers=settings["layers"],
        hidden_size=settings["width"],
        num_attention_heads=settings["heads"],
        intermediate_size=settings["ffn"],
        vocab_size=settings["dictionary"],
        max_position_embeddings=prompt + new,
    )
    own = LlamaForCausalLM(config).to(context.device).eval()

    def replaced(encoding: str, attention: Literal["vanilla", "linear"]) -> LlamaForCausalLM:
        model = LlamaForCausalLM(config)
        model.load_state_dict(own.state_dict())
        options = own_rotation(model) if encoding == "rope" else {}
        replace_position_encoding(model, encoding, attention=attention, **options)
        return model.to(context.device).eval()

    models = {OWN: own} | {
        f"{encoding} {attention}": replaced(encoding, attention)
        for encoding, attention in settings["rows"]
    }
    tokens = torch.randint(settings["dictionary"], (1, prompt), device=context.device)
    with torch.no_grad():
        right = own.double()(tokens).logits
        logits = models["rope vanilla"](tokens).logits
        compare("rope in place of the model's own", ["the logits"], [logits], [right])
    own.float()

    def generate(model: LlamaForCausalLM) -> Callable[[], object]:
        return lambda: model.generate(
            tokens, do_sample=False, min_new_tokens=new, max_new_tokens=new, pad_token_id=0
        )

    runs = {name: generate(model) for name, model in models.items()}
    ratios = {f"{name}/{OWN}": (name, OWN) for name in models if name != OWN}
    yield Case(runs=runs, ratios=ratios, steps=new)
