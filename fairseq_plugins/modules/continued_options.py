"""Options for starting from a checkpoint with another encoding or attention."""

from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.common.option_field import option
from fairseq_plugins.modules.growing import GROWTH_METHODS

_GROWING = ChoiceEnum(list(GROWTH_METHODS))
_INITIAL_ENCODING = ChoiceEnum(["checkpoint", "new"])


@dataclass
class ContinuedConfig(FairseqDataclass):
    """Options of the initial checkpoint and of growing its learned table."""

    init_from: Optional[str] = option(
        None,
        "checkpoint to start from; only its position encoding and attention may "
        "differ. Matching weights are loaded, new and unused ones are logged",
    )
    init_encoding: _INITIAL_ENCODING = option(
        "checkpoint",
        "if init_from has the same position encoding: load its weights (checkpoint), "
        "or initialise them anew, as a control (new)",
    )
    grow_table: _GROWING = option(
        "copy",
        "how a longer learned table is initialised from that of init_from: copy its "
        "rows and leave the others new, interpolate between them, or derive all by Su's "
        "hierarchical decomposition",
    )
