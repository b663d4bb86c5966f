"""Reset of fairseq's process-wide training state, for sweeps that train several models."""

import sys
from typing import Any

from fairseq.models import BaseFairseqModel

# fairseq stores the best validation loss in attributes of these functions.
_STATE = (
    ("fairseq.checkpoint_utils", "save_checkpoint", ("best",)),
    ("fairseq_cli.train", "should_stop_early", ("best", "num_runs")),
)


class FreshTrainingState(BaseFairseqModel):
    """Mixin that resets fairseq's best validation loss when a model is built.

    Otherwise a second training would write no ``checkpoint_best.pt`` until it beats the first, and
    would stop early too soon. A resumed training reads its own value from the checkpoint later.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for module, function, names in _STATE:
            if module in sys.modules:
                attributes = vars(getattr(sys.modules[module], function))
                for name in names:
                    attributes.pop(name, None)
