"""Absolute encodings as their tests build them."""

import torch
from torch import Tensor

from fairseq_plugins.encodings import build_encoding


def build(name: str, width: int = 8, *, max_positions: int = 16, **options):
    return build_encoding(
        name,
        num_heads=1,
        head_dim=width,
        embed_dim=width,
        max_positions=max_positions,
        generator=torch.Generator().manual_seed(2),
        **options,
    )


def count(length: int) -> Tensor:
    return torch.arange(length).unsqueeze(0)


def smallest_distance(rows: Tensor) -> float:
    """Between any two of the vectors (N, C)."""
    rows = rows.detach().double()
    distances = torch.cdist(rows, rows) + torch.eye(rows.size(0)) * 1e9
    return float(distances.min())
