"""Size of the raw text behind a split of a data folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError


@dataclass(frozen=True)
class RawText:
    """Size of a split's raw text; None if data.json does not record it.

    Attributes:
        words: words plus line ends, which a word-level model predicts too.
        bytes: bytes in UTF-8, with line feeds.
        unknown: words or subwords that are <unk> in the data.
        why: what the folder lacks; empty if nothing.
    """

    words: int | None = None
    bytes: int | None = None
    unknown: int | None = None
    why: str = ""


def read_raw_text(folder: Path, split: str, tokens: int) -> RawText:
    """Read the size of a split's raw text from data.json, if that belongs to its number of tokens.

    Raises DataError for a damaged data.json.
    """
    path = folder / "data.json"
    if not path.is_file():
        return RawText(why="the folder has no data.json")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return _read(about["raw"][split], about["splits"][split], tokens)
    except KeyError as error:
        return RawText(why=f"its data.json lacks {error}")
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def _read(raw: Mapping[str, Any], made: Mapping[str, Any], tokens: int) -> RawText:
    expected = made["words"] + made["lines"]
    if expected != tokens:
        return RawText(why=f"its data.json has {expected} tokens, but the split has {tokens}")
    size = raw.get("bytes")
    if size is None and raw["sha256"] == made["sha256"]:  # whole words: the text is the data
        size = made["bytes"]
    why = "" if size is not None else "its data.json is too old to record the bytes of the text"
    return RawText(raw["words"] + made["lines"], size, made["unknown_words"], why)
