"""Check of ``--model-overrides``, whose unknown names fairseq ignores without a message."""

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fairseq.dataclass import FairseqDataclass

from fairseq_plugins.common.checkpoints import as_mapping, option_of
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.suggestions import did_you_mean


def check_overrides(config: Any, options: type[FairseqDataclass]) -> None:
    """Check that ``--model-overrides`` names options.

    Args:
        config: fairseq's options of the command.
        options: those of the model.

    Raises:
        OptionError: one of them is neither the model's nor in a section of fairseq's.
    """
    common, generation = (getattr(config, name, None) for name in ("common_eval", "generation"))
    # Several models share the overrides, and each may have options of its own.
    several = os.pathsep in (option_of(common, "path") or "") or option_of(generation, "lm_path")
    given = option_of(common, "model_overrides")
    if several or not given:
        return
    # A section is given as a dictionary, or as the name of a component.
    known = {*(option.name for option in fields(options)), *config}
    # A section without a value is listed, but `in` is False for it.
    sections = [as_mapping(config[name]) for name in config if name in config]
    known |= {name for section in sections if isinstance(section, Mapping) for name in section}
    for name in _names(given):
        if name not in known:
            raise OptionError(
                "`model_overrides` must name options of the model or of fairseq, but has "
                f"{name!r}.{did_you_mean(name, known)}"
            )


def _names(overrides: str) -> Iterator[str]:
    """Yield the keys of a dictionary that is written as Python."""
    written = ast.parse(overrides.strip(), mode="eval").body
    for key in written.keys if isinstance(written, ast.Dict) else ():
        if isinstance(key, ast.Constant):
            yield str(key.value)
