"""Options of the models that can start from a checkpoint with another encoding or attention."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.modules.growing import GROWING

_GROWING = ChoiceEnum(list(GROWING))
_INITIAL_ENCODING = ChoiceEnum(["checkpoint", "new"])


@dataclass
class ContinuedConfig(FairseqDataclass):
    """Where a model starts, and how its learned table becomes longer."""

    init_from: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint to start from, whose position encoding and attention may be "
            "others; what fits is loaded, what is new or left behind is listed, and nothing else "
            "may differ"
        },
    )
    init_encoding: _INITIAL_ENCODING = field(
        default="checkpoint",
        metadata={
            "help": "where init_from has the same position encoding: take the checkpoint's weights "
            "of it (checkpoint), or draw them anew, as a control (new)"
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
