"""A head that finds the first and the last token of an answer."""

import logging
from typing import Any

from torch import Tensor, nn

logger = logging.getLogger(__name__)
PREFIX = "span_heads."


class SpanHead(nn.Module):
    """start = w_s . x + b_s, end = w_e . x + b_e for every token x (BERT, Sec. 4.2).

    Args:
        embed_dim: C, of the features.
        dropout: of the features.
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(embed_dim, 2)

    def forward(self, features: Tensor, padding: Tensor | None = None) -> Tensor:
        """Logits (B, T, 2) of features (B, T, C), -inf where padding (B, T) is True."""
        logits: Tensor = self.out_proj(self.dropout(features))
        if padding is not None:
            logits = logits.masked_fill(padding.unsqueeze(-1), float("-inf"))
        return logits


def upgrade_span_heads(
    heads: nn.ModuleDict, state_dict: dict[str, Any], prefix: str, register: Any
) -> None:
    """Treat span heads as fairseq treats classification heads.

    A head keeps its own weights where a checkpoint has none, and one that only the checkpoint has
    is dropped, which is said.

    Args:
        heads: of the model.
        state_dict: of the checkpoint; changed in place.
        prefix: of the model's names in it.
        register: called with the name of a head that only the checkpoint has; None to drop it.
    """
    start = prefix + PREFIX
    saved = {
        key: key.removeprefix(start).split(".")[0] for key in state_dict if key.startswith(start)
    }
    for name in sorted(set(saved.values()) - set(heads)):
        if register is not None:
            register(name)
            continue
        logger.warning("the checkpoint's span head %r is not in the model: left out", name)
        for key in [key for key, head in saved.items() if head == name]:
            del state_dict[key]
    for key, value in heads.state_dict().items():
        state_dict.setdefault(start + key, value)
