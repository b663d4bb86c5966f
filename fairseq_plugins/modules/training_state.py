"""Reset of fairseq's process-wide training state, for sweeps that train several models."""

import sys
from typing import Any

from fairseq.models import BaseFairseqModel

# fairseq stores the state of a training in attributes of these functions.
_KEPT = (
    ("fairseq.checkpoint_utils", "save_checkpoint", ("best",)),
    ("fairseq_cli.train", "should_stop_early", ("best", "num_runs")),
)


def reset_training_state() -> None:
    """Reset the best validation loss that fairseq keeps for the lifetime of a process.

    Otherwise a second training would write no ``checkpoint_best.pt`` until it beats the first, and
    would stop early too soon. A resumed training reads its own value from the checkpoint later.
    """
    for module, function, names in _KEPT:
        if module in sys.modules:
            kept = vars(getattr(sys.modules[module], function))
            for name in names:
                kept.pop(name, None)


class FreshTrainingState(BaseFairseqModel):
    """Mixin that resets fairseq's process-wide training state when a model is built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        reset_training_state()
