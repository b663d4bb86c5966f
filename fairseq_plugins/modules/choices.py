"""Pickling of fairseq's options with choices, which models keep."""

import copyreg
from typing import Any

from fairseq.dataclass.constants import ChoiceEnum, StrEnumMeta


def pickle_choices() -> None:
    """Let pickle rebuild the classes of choices, which cannot be imported by name.

    Otherwise ``torch.save(model)`` fails for each model whose options come from a dataclass.
    """
    copyreg.pickle(StrEnumMeta, _reduce)


def _reduce(choices: Any) -> str | tuple[Any, ...]:
    values = [choice.value for choice in choices]
    return (ChoiceEnum, (values,)) if values else str(choices.__qualname__)
