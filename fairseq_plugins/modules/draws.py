"""Stochastic encodings draw the same in every evaluation with the same seed."""

from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from fairseq_plugins.encodings import PositionEncoding


class SeededDraws(BaseFairseqModel):
    """Part of a model whose encodings may be stochastic."""

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq does; and seed the draws of a stochastic encoding by ``common.seed``.

        fairseq-train seeds PyTorch itself; fairseq-eval-lm does not, and fairseq-generate only
        where ``--seed`` is given.
        """
        super().prepare_for_inference_(cfg)
        if any(isinstance(m, PositionEncoding) and m.is_stochastic for m in self.modules()):
            torch.manual_seed(cfg.common.seed)
