"""A data folder from a single text file, with its end held out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import write_bytes
from fairseq_plugins.data.folders import report
from fairseq_plugins.data.plain_text import read_lines
from fairseq_plugins.data.prepare_mlm import prepare_text

SHARE = 20  # valid and test have one twentieth each
LEAST_BYTES = 20_000
MOST_BYTES = 8_000_000  # enough for a short training


def prepare_one_text(text: Path, output: Path, *, merges: int, workers: int) -> None:
    """Make a data folder of a plain or compressed text, with byte-level BPE learned from it.

    The last twentieth of its lines is the test split, the one before it valid.

    Raises:
        DataError: the file is missing, not UTF-8, or too short.
    """
    splits, size, is_cut = read_splits(text)
    if is_cut:
        report(f"{text.name} is long: its first {size / 1e6:.1f} MB are used")
    raw = output.with_name(f"{output.name}-text") / text.name.partition(".")[0]
    prepare_splits(splits, raw, output, merges=merges, workers=workers)


def prepare_splits(splits: Mapping[str, list[bytes]], raw: Path, output: Path, **how: Any) -> None:
    """Write lines by split to a folder `raw`, and make a data folder of them as `prepare_text`.

    An existing folder of another text is replaced, so `raw` should contain the text's name.
    """
    for split, lines in splits.items():
        write_bytes(raw / f"{split}.txt", b"".join(lines))
    prepare_text(output, raw, force=True, **how)


def read_splits(text: Path) -> tuple[dict[str, list[bytes]], int, bool]:
    """Read the lines of train, valid and test, their bytes, and whether the text has more.

    Raises:
        DataError: the file is missing, not UTF-8, or too short.
    """
    if not text.is_file():
        raise DataError(f"--text must be a file, but is {text}")
    lines, size, is_cut = [], 0, False
    try:
        for line in read_lines(text):
            if len(line) > MOST_BYTES:
                raise DataError(
                    f"--text must have lines of at most {MOST_BYTES:,} bytes, but a line of {text} "
                    f"has {len(line):,}"
                )
            if is_cut := size + len(line) > MOST_BYTES:
                break
            lines.append(line)
            size += len(line)
    except DataError as error:
        raise DataError(f"--text must be readable text, but {error}") from error
    if size < LEAST_BYTES:
        raise DataError(f"--text must have at least {LEAST_BYTES:,} bytes, but {text} has {size:,}")
    return split_lines(lines), size, is_cut


def split_lines(lines: list[bytes], name: str = "--text") -> dict[str, list[bytes]]:
    """Split lines into train, valid and test, the latter two with a twentieth of the bytes each.

    name: name of the text, for error messages.

    Raises DataError: a split would have no text.
    """
    total, start = sum(map(len, lines)), 0
    splits: dict[str, list[bytes]] = {"train": [], "valid": [], "test": []}
    last_parts = {SHARE - 2: "valid", SHARE - 1: "test"}
    for line in lines:
        splits[last_parts.get(start * SHARE // total, "train")].append(line)
        start += len(line)
    for split, part in splits.items():
        if not b"".join(part).strip():
            count = sum(1 for line in lines if line.strip())
            raise DataError(
                f"{name} must have at least {SHARE} lines of similar length, or none is left for "
                f"{split}, but has {count}"
            )
    return splits
