"""Pickling of fairseq's options with choices, which models keep."""

import copyreg
from typing import Any

from fairseq.dataclass.constants import ChoiceEnum, StrEnumMeta


def pickle_choices() -> None:
    """Let pickle make the classes of choices anew, since no module has them by their name.

    Otherwise ``torch.save(model)`` fails for each model whose options come from a dataclass.
    """
    copyreg.pickle(StrEnumMeta, _reduce)


def _reduce(choices: Any) -> str | tuple[Any, ...]:
    values = [choice.value for choice in choices]
    return (ChoiceEnum, (values,)) if values else str(choices.__qualname__)
