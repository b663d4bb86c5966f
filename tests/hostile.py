"""Checkpoints whose options run code where they are evaluated; the code is to touch a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def expression(marker: Path) -> str:
    """Python that leaves ``marker`` behind, and is of no use as an option."""
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


def rewritten(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint with other options."""
    checkpoint = torch.load(source, map_location="cpu", weights_only=True)
    change(checkpoint["cfg"])
    torch.save(checkpoint, target)
    return target


def naming_another_model(source: Path, target: Path, marker: Path) -> Path:
    """One that names a model of fairseq's which evaluates its options."""
    layers = {"decoder_layers": expression(marker), "decoder_attention": "False"}
    model = {"_name": "fconv_lm", "dropout": 0.1, "decoder_embed_dim": 8, **layers}
    more = {"tokens_per_sample": 16, "criterion": "cross_entropy", "add_bos_token": False}
    return rewritten(source, target, lambda config: config.update(model={**model, **more}))


def with_options(source: Path, target: Path, **options: Any) -> Path:
    """One of a model of ours with other options."""
    return rewritten(source, target, lambda config: config["model"].update(options))
