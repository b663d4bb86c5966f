"""Output head that predicts the first and last token of an answer."""

import logging
from typing import Any

from torch import Tensor, nn

logger = logging.getLogger(__name__)
PREFIX = "span_heads."


class SpanHead(nn.Module):
    """Linear head start = w_s . x + b_s, end = w_e . x + b_e for each token x (BERT, Sec. 4.2).

    Args:
        embed_dim: width C of the features.
        dropout: dropout probability of the features.
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(embed_dim, 2)

    def forward(self, features: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return logits (B, T, 2) of features (B, T, C); -inf where padding (B, T) is True."""
        logits: Tensor = self.out_proj(self.dropout(features))
        if padding is not None:
            logits = logits.masked_fill(padding.unsqueeze(-1), float("-inf"))
        return logits


def upgrade_span_heads(
    heads: nn.ModuleDict, state_dict: dict[str, Any], prefix: str, register: Any
) -> None:
    """Match the span heads of a checkpoint and a model, as fairseq does for classification heads.

    Heads missing from the checkpoint keep their weights. Heads missing from the model are dropped
    with a warning.

    Args:
        heads: span heads of the model.
        state_dict: weights of the checkpoint, changed in place.
        prefix: prefix of the model's names in ``state_dict``.
        register: called with the name of each head missing from the model; None to drop them.
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
