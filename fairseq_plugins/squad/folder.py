"""A prepared data folder: what lies where in it.

dict.txt            the dictionary, fairseq's
<split>.bin, .idx   the windows as token ids, fairseq's
<split>.npz         where each comes from and what has to be found in it (`Features`)
raw/<split>.json    the official file
data.json           what it was made from
"""

import json
from pathlib import Path
from typing import Any

from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.errors import DataError

SPLITS = ("train", "valid")
# What a folder must hold beside data.json.
FILES = (
    "dict.txt",
    *(f"{s}.{x}" for s in SPLITS for x in ("bin", "idx", "npz")),
    *(f"raw/{s}.json" for s in SPLITS),
)
_HINT = f"{as_typed('scripts/prepare_squad.sh')} makes such a folder"


def features_path(folder: Path, split: str) -> Path:
    """The file of a split's windows beside their tokens."""
    return folder / f"{split}.npz"


def raw_path(folder: Path, split: str) -> Path:
    """The file of a split as SQuAD publishes it."""
    return folder / "raw" / f"{split}.json"


def read_facts(folder: Path) -> dict[str, Any]:
    """Read data.json, with at least {"request": {"version": ..., "max_length": ...}}.

    Raises:
        DataError: where it is missing, damaged or of other data.
    """
    path = folder / "data.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); {_HINT}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    request = facts.get("request") if isinstance(facts, dict) else None
    if not isinstance(request, dict) or not {"version", "max_length"} <= request.keys():
        raise DataError(f"{folder} holds other data; {_HINT}")
    return facts
