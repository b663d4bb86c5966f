"""How long the text is that a split of a data folder was made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError


@dataclass(frozen=True)
class RawText:
    """The text of a split; None where the folder does not say.

    Attributes:
        words: its words, and one end for each line, which a model of words has to predict, too.
        bytes: in UTF-8, with line feeds.
        unknown: words, or pieces of them, that the data has as <unk> alone.
        why: what the folder lacks, empty where it says everything.
    """

    words: int | None = None
    bytes: int | None = None
    unknown: int | None = None
    why: str = ""


def read_raw_text(folder: Path, split: str, tokens: int) -> RawText:
    """What data.json says of the text of a split.

    Args:
        folder: a data folder.
        split: its name.
        tokens: how many the binarised split has, by which data.json is known to be of it.

    Raises:
        DataError: a damaged data.json.
    """
    path = folder / "data.json"
    if not path.is_file():
        return RawText(why="the folder has no data.json")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return _read(about["raw"][split], about["splits"][split], tokens)
    except KeyError as error:
        return RawText(why=f"its data.json does not say {error}")
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def _read(raw: Mapping[str, Any], made: Mapping[str, Any], tokens: int) -> RawText:
    expected = made["words"] + made["lines"]
    if expected != tokens:
        return RawText(why=f"its data.json is of {expected} tokens, but the split has {tokens}")
    size = raw.get("bytes")
    if size is None and raw["sha256"] == made["sha256"]:  # whole words: the text is the data
        size = made["bytes"]
    why = "" if size is not None else "its data.json is from before it said the bytes of the text"
    return RawText(raw["words"] + made["lines"], size, made["unknown_words"], why)
