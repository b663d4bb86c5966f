"""Stochastic encodings draw the same in every evaluation that is asked for in the same words."""

from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from fairseq_plugins.encodings import PositionEncoding, Stochastic


class SeededDraws(BaseFairseqModel):
    """Part of a model whose encodings may be stochastic."""

    @property
    def is_stochastic(self) -> bool:
        """Whether any encoding draws."""
        encodings = (m for m in self.modules() if isinstance(m, PositionEncoding))
        return any(isinstance(encoding, Stochastic) for encoding in encodings)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq does; and seed the draws of a stochastic encoding by ``common.seed``.

        fairseq-train and fairseq-generate seed PyTorch themselves, fairseq-eval-lm does not.
        """
        super().prepare_for_inference_(cfg)
        if self.is_stochastic:
            torch.manual_seed(cfg.common.seed)

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """As fairseq does; where fairseq loads a checkpoint, draws begin anew.

        fairseq-validate neither seeds PyTorch nor prepares a model or tells it the seed. Training
        that goes on is seeded at every update. Without ``model_cfg``, outside fairseq's loaders,
        nothing is seeded.
        """
        result = super().load_state_dict(state_dict, strict, model_cfg, args)
        if model_cfg is not None and self.is_stochastic:
            torch.manual_seed(1)
        return result
