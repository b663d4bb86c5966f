"""Several trainings in one process, as in Hydra's sweeps: each begins as if it were the first."""

import sys
from typing import Any

from fairseq.models import BaseFairseqModel

# Where fairseq keeps what the training before had: attributes of its functions.
_KEPT = (
    ("fairseq.checkpoint_utils", "save_checkpoint", ("best",)),
    ("fairseq_cli.train", "should_stop_early", ("best", "num_runs")),
)


def forget_training_before() -> None:
    """Drop the best validation loss that fairseq keeps for the life of a process.

    A second training would otherwise have no ``checkpoint_best.pt`` until it is better than the
    first one, and would lose its patience early. One that goes on has its own from its checkpoint,
    which fairseq reads after it has built the model.
    """
    for module, function, names in _KEPT:
        if module in sys.modules:
            kept = vars(getattr(sys.modules[module], function))
            for name in names:
                kept.pop(name, None)


class OneOfSeveral(BaseFairseqModel):
    """Part of a model that may not be the first to be trained in its process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        forget_training_before()
