"""Splits of plain text files, with documents held out for missing splits.

A document ends at an empty line or at the end of a file. If that gives too few documents to hold
some out, as in a novel without empty lines, every line is one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import UNPACKING_ERRORS, decoded, open_packed
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.options import check_folder

SUFFIXES = (".txt", ".txt.xz", ".txt.gz")
# Words in file names that denote a split.
_SPLIT_WORDS = {
    "train": {"train"},
    "valid": {"valid", "val", "validation", "dev"},
    "test": {"test"},
}


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file, each ending in a line feed.

    A byte-order mark and carriage returns at line ends are left out: no model predicts them, so
    they must not count among the bytes of the text.

    Raises DataError: the file is damaged or not UTF-8; names the line.
    """
    number = 0
    try:
        with open_packed(path) as lines:
            for line in decoded(lines, path):
                number += 1
                yield line.rstrip("\r\n").encode() + b"\n"
    except UNPACKING_ERRORS as error:
        raise DataError(f"{path} is damaged after line {number}: {error}") from error


def read_splits(
    files: Mapping[str, Sequence[Path]], held_out: float = 1.0, evaluation_lines: int | None = None
) -> dict[str, Iterator[bytes]]:
    """Return lazily read lines by split; valid or test without files get train's last documents.

    Args:
        files: files by split.
        held_out: percentage of train's documents for a split without files, at least one document.
        evaluation_lines: number of lines of each document that valid and test keep; None for all.

    Raises:
        DataError: train has too few documents to hold some out.
    """
    missing = [split for split in SPLITS if not files[split]]
    by_line = False
    ranges: dict[str, tuple[int, int]] = {}
    if missing:
        count = _count(_numbered(_joined(files["train"])))
        if by_line := count <= len(missing):  # as in a novel without empty lines
            count = _count(_numbered(_joined(files["train"]), by_line=True))
        ranges = _held_out_ranges(missing, count, "lines" if by_line else "documents", held_out)

    def lines_of(split: str) -> Iterator[bytes]:
        documents = _numbered(_joined(files[split] or files["train"]), by_line=by_line)
        if split in ranges:
            first, last = ranges[split]
            documents = ((n, line) for n, line in documents if first <= n < last)
        if split != "train" and evaluation_lines is not None:
            documents = _first_lines(documents, evaluation_lines)
        return (line for _, line in documents)

    return {split: lines_of(split) for split in SPLITS}


def _count(documents: Iterable[tuple[int, bytes]]) -> int:
    return 1 + max((number for number, _ in documents), default=-1)


def _held_out_ranges(
    missing: Sequence[str], count: int, noun: str, held_out: float
) -> dict[str, tuple[int, int]]:
    """Return the document range [first, last) of train and of each missing split."""
    share = max(1, int(count * held_out / 100))
    last = count - share * len(missing)
    if last < 1:
        raise DataError(
            f"no file is named for {' and '.join(missing)}, and train has too few {noun} "
            f"to hold out {share} for each: {count}"
        )
    ranges = {"train": (0, last)}
    for split in missing:
        ranges[split] = (last, last + share)
        last += share
    return ranges


def _joined(files: Sequence[Path]) -> Iterator[bytes]:
    for index, path in enumerate(files):
        if index:
            yield b"\n"
        yield from read_lines(path)


def _is_blank(line: bytes) -> bool:
    return not line.decode().strip()


def _numbered(lines: Iterable[bytes], *, by_line: bool = False) -> Iterator[tuple[int, bytes]]:
    """Number lines by document, or each by itself; empty ones belong to what precedes them."""
    number, ended = -1, True
    for line in lines:
        is_blank = _is_blank(line)
        number += not is_blank and (ended or by_line)
        ended = is_blank
        yield max(0, number), line


def _first_lines(documents: Iterable[tuple[int, bytes]], count: int) -> Iterator[tuple[int, bytes]]:
    current, seen = -1, 0
    for number, line in documents:
        current, seen = number, seen if number == current else 0
        if _is_blank(line):
            yield number, line
        elif seen < count:
            seen += 1
            yield number, line


def find_files(
    folder: Path, chosen: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[Path]], list[str]]:
    """Find the files of every split, and the names of the folder's other files and folders of text.

    Hidden files are left out.

    Args:
        folder: folder with text files.
        chosen: names of files by split. Files of other splits are recognised by words in their
            names (novels.valid.txt, train-2.txt.xz); if no name has one, all files are train's.

    Raises:
        DataError: missing folder or file, or no text at all.
        OptionError: a file is in two splits.
    """
    check_folder(folder)
    files = {split: [folder / name for name in chosen.get(split, ())] for split in SPLITS}
    for split, paths in files.items():
        for path in paths:
            if not path.is_file():
                raise DataError(f"--{split}: {folder} does not hold {path.name}")
    named = [path for paths in files.values() for path in paths]
    twice = sorted({path.name for path in named if named.count(path) > 1})
    if twice:
        raise OptionError(f"{', '.join(twice)} is given twice; every file is of one split")
    entries = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    others = [path for path in entries if path.is_file() and path not in named]
    rest = [path for path in others if path.name.endswith(SUFFIXES)]
    split_of = {path: _split_of(path.name) for path in rest}
    if not named and not any(split_of.values()):
        split_of = dict.fromkeys(rest, "train")
    for split in SPLITS:
        if not files[split]:
            files[split] = [path for path in rest if split_of[path] == split]
    used = {path for paths in files.values() for path in paths}
    unused = [path.name for path in others if path not in used]
    unused += [f"{path.name}/" for path in entries if _has_other_text(path, named)]
    if not files["train"]:
        raise DataError(
            f"{folder} has no text to train on: no file *.txt, *.txt.xz or *.txt.gz is named for "
            "train; choose one with --train NAME"
            + (f"; not read: {', '.join(unused)}" if unused else "")
        )
    return files, unused


def _has_other_text(folder: Path, named: Sequence[Path]) -> bool:
    """Return whether a folder has text that is not named; False for a file."""
    return any(one.name.endswith(SUFFIXES) and one not in named for one in folder.rglob("*"))


def _split_of(name: str) -> str | None:
    words = set(re.split(r"[^a-z]+", name.lower()))
    return next((split for split, known in _SPLIT_WORDS.items() if words & known), None)
