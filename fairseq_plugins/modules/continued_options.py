"""Options of the models that can start from a checkpoint with another position encoding."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.modules.growing import GROWING

_GROWING = ChoiceEnum(list(GROWING))


@dataclass
class ContinuedConfig(FairseqDataclass):
    """Where a model starts, and how its learned table becomes longer."""

    init_from: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint to start from, whose position encoding may be another; what fits "
            "is loaded, what is new or left behind is listed, and nothing else may differ"
        },
    )
    grow_table: _GROWING = field(
        default="copy",
        metadata={
            "help": "how a longer learned table starts from that of init_from: copy its rows and "
            "leave the others new, interpolate between them, or derive all by Su's hierarchical "
            "decomposition"
        },
    )
