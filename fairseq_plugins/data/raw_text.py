"""Size of the raw text behind a split of a data folder."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import require_object


@dataclass(frozen=True)
class RawText:
    """Size of a split's raw text; None if data.json does not record it."""

    words: int | None = None  # words plus line ends, which a word-level model predicts too
    bytes: int | None = None  # in UTF-8, with line feeds
    unknown: int | None = None  # words or subwords that are <unk> in the data
    why: str = ""  # reason why a size is missing; empty if none is


def read_raw_text(folder: Path, split: str, tokens: int) -> RawText:
    """Read the size of a split's raw text from data.json.

    Args:
        folder: data folder.
        split: name of the split.
        tokens: number of tokens in the binarised split, which data.json must record too.

    Raises:
        DataError: data.json is damaged.
    """
    path = folder / "data.json"
    if not path.is_file():
        return RawText(why="the folder has no data.json")
    try:
        about = require_object(path)
        raw, data = about["raw"][split], about["splits"][split]
        expected = data["words"] + data["lines"]
        if expected != tokens:
            return RawText(why=f"its data.json has {expected} tokens, but the split has {tokens}")
        size = raw.get("bytes")
        if size is None and raw["sha256"] == data["sha256"]:  # whole words: the text is the data
            size = data["bytes"]
        why = "" if size is not None else "its data.json is too old to record the bytes of the text"
        return RawText(raw["words"] + data["lines"], size, data["unknown_words"], why)
    except KeyError as error:
        return RawText(why=f"its data.json lacks {error}")
    except TypeError as error:
        raise DataError(f"{path} is damaged: {error}") from error
