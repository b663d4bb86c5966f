"""Which checkpoints stay when a run is measured."""

from typing import Literal

from fairseq_plugins.common.checkpoints import LAST
from fairseq_plugins.experiments.training import Training

# `all`; `last`, the one that training would go on from beside the measured one; `best`, the
# measured one alone; or `tuned`, the measured one of every fine-tuning, too, which otherwise goes
# as soon as it is measured.
Keep = Literal["last", "best", "all", "tuned"]


def kept_names(training: Training, keep: Keep) -> set[str]:
    """The files that stay of a run's training, unless all do.

    The one that was measured always stays, since other tables may start from it.
    """
    return {training.evaluated, *({LAST} if keep == "last" else ())}
