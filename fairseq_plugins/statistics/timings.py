"""Timings of training steps (LRPE, Table 9) and other measurements without a training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fairseq_plugins.common.files import read_object
from fairseq_plugins.common.root import from_root, root_folder
from fairseq_plugins.papers.claims import TIMINGS
from fairseq_plugins.records.results import Say

Content = Mapping[str, Any]  # of a JSON file


class _Ratio(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    relative_speed: float
    quartiles: tuple[float, float]


class _Timing(BaseModel):
    """The fields of a cell of Table 9 that pages use."""

    row: str
    attention: str
    metrics: _Ratio


def read_timings(root: Path, say: Say) -> dict[str, list[Content]]:
    """Read Table 9 by device; `say` gets a sentence on each damaged file."""
    return {
        folder.name: [
            content
            for path in sorted(folder.glob("*.json"))
            if (content := read_measurement(root, path, _Timing, say)) is not None
        ]
        for folder in sorted((root / root_folder("results") / TIMINGS).glob("*/"))
        if any(folder.glob("*.json"))
    }


def read_measurement(root: Path, path: Path, schema: type[BaseModel], say: Say) -> Content | None:
    """Read and validate a JSON object; None for a damaged one, on which `say` gets a sentence."""
    content = read_object(path)
    try:
        if content is not None:
            schema.model_validate(content)
            return content
        why = "no JSON object"
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    say(f"{from_root(path, root)} is not a complete result ({why}).")
    return None
