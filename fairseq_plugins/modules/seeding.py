"""Reproducible draws of stochastic encodings in evaluation."""

from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from fairseq_plugins.encodings import PositionEncoding, Stochastic


class SeededSampling(BaseFairseqModel):
    """Mixin that seeds the draws of stochastic encodings in evaluation."""

    @property
    def is_stochastic(self) -> bool:
        """Return whether any encoding of the model draws random numbers."""
        encodings = (m for m in self.modules() if isinstance(m, PositionEncoding))
        return any(isinstance(encoding, Stochastic) for encoding in encodings)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare as fairseq does, and seed stochastic encodings with ``common.seed``.

        fairseq-train and fairseq-generate seed PyTorch themselves, fairseq-eval-lm does not.
        """
        super().prepare_for_inference_(cfg)
        if self.is_stochastic:
            torch.manual_seed(cfg.common.seed)

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load weights as fairseq does; when fairseq loads a checkpoint, seed stochastic encodings.

        fairseq-validate neither seeds PyTorch nor calls ``prepare_for_inference_``. A resumed
        training is seeded at every update. Outside fairseq's loaders ``model_cfg`` is None, and
        nothing is seeded.
        """
        result = super().load_state_dict(state_dict, strict, model_cfg, args)
        if model_cfg is not None and self.is_stochastic:
            torch.manual_seed(1)
        return result
