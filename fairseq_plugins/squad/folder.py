"""The layout of a prepared data folder.

dict.txt            fairseq's dictionary
<split>.bin, .idx   token ids of the windows, in fairseq's format
<split>.npz         origins and targets of the windows (`Features`)
raw/<split>.json    the official file
data.json           sources and settings
"""

from pathlib import Path
from typing import Any

from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import require_object

VERSIONS = ("1.1", "2.0")  # of SQuAD
SPLITS = ("train", "valid")
# Required files beside data.json.
FILES = (
    "dict.txt",
    *(f"{s}.{x}" for s in SPLITS for x in ("bin", "idx", "npz")),
    *(f"raw/{s}.json" for s in SPLITS),
)
_HINT = f"{typed_command('scripts/prepare_squad.sh')} makes such a folder"


def features_path(folder: Path, split: str) -> Path:
    """Return the path of a split's `Features`."""
    return folder / f"{split}.npz"


def raw_path(folder: Path, split: str) -> Path:
    """Return the path of a split's official file."""
    return folder / "raw" / f"{split}.json"


def read_description(folder: Path) -> dict[str, Any]:
    """Read data.json, with at least {"request": {"version": ..., "max_length": ...}}.

    Raises:
        DataError: the file is missing, damaged or of other data.
    """
    path = folder / "data.json"
    try:
        description = require_object(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); {_HINT}") from error
    request = description.get("request")
    if not isinstance(request, dict) or not {"version", "max_length"} <= request.keys():
        raise DataError(f"{folder} holds other data; {_HINT}")
    return description
