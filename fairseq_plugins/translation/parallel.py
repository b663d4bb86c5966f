"""Parallel text: pairs of files whose n-th lines are translations of each other.

Files are plain, .xz or .gz. Only a line feed ends a line, as for the tools that made the corpora:
neither a carriage return nor Unicode's own line separators do.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import PACKED, find_packed, reading
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.translation.moses import printable

Paths = tuple[Path, Path]  # source and target


@dataclass(frozen=True)
class ParallelText:
    """Paths of the raw text of each split.

    train: pairs of files, one after the other. valid: None where every `VALID_EVERY`-th pair of
    the training text is taken out for it, as the published preparation of WMT14 does.
    """

    train: Sequence[Paths]
    valid: Paths | None
    test: Paths


VALID_EVERY = 100


@dataclass(frozen=True)
class Cleaning:
    """Limits of training pairs by their lengths in pieces; the defaults are WMT14's.

    Raises:
        OptionError: a bound that no pair could meet.
    """

    min_length: int = 1
    max_length: int = 250
    max_ratio: float = 1.5

    def __post_init__(self) -> None:
        check_at_least(1, min_length=self.min_length)
        if self.max_length < self.min_length:
            raise OptionError(
                f"--max-length must be at least --min-length ({self.min_length}), "
                f"but is {self.max_length}"
            )
        check_at_least(1, max_ratio=self.max_ratio)

    def verdict(self, source: int, target: int) -> str:
        """`kept`, or why a pair of these lengths is not: `empty`, `short`, `long` or `ratio`."""
        least, most = sorted((source, target))
        if least == 0:
            return "empty"
        if least < self.min_length:
            return "short"
        if most > self.max_length:
            return "long"
        return "ratio" if most > least * self.max_ratio else "kept"


def find_text(folder: Path, names: Iterable[str], option: str) -> Path:
    """The first of these files that a folder holds, plain or packed.

    Raises:
        DataError: where there is none.
    """
    names = list(names)
    path = find_packed(folder, *names)
    if path is None:
        raise DataError(f"{option} {folder} does not hold {' or '.join(names)} ({PACKED})")
    return path


def read_pairs(paths: Paths, *, empty_lines: bool) -> Iterator[tuple[bytes, bytes]]:
    """Lines that belong together, each with its line feed.

    empty_lines: whether a line may be empty, as in training text that is cleaned later.

    Raises:
        DataError: naming file and line, where one file ends before the other, a line is empty
            or no UTF-8.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(reading(path)) for path in paths]
        pairs = itertools.zip_longest(*files)
        for number, lines in enumerate(pairs, start=1):
            if None in lines:
                _refuse_lengths(paths, number, lines, files)
            for path, line in zip(paths, lines, strict=True):
                _check_line(line, path, number, empty_lines)
            source, target = (line.removesuffix(b"\n") + b"\n" for line in lines)
            yield source, target


def _refuse_lengths(
    paths: Paths, number: int, lines: Sequence[bytes | None], files: Sequence[IO[bytes]]
) -> None:
    longer = 0 if lines[1] is None else 1
    total = number + sum(1 for _ in files[longer])
    raise DataError(
        f"{paths[1 - longer]} has {number - 1} lines and {paths[longer]} has {total}: "
        f"line {number} of {paths[longer].name} has no translation"
    )


def _check_line(line: bytes, path: Path, number: int, empty_lines: bool) -> None:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8: {error}") from error
    if not empty_lines and not printable(text).strip():
        raise DataError(
            f"{path}, line {number}: empty; validation and test sets must have a sentence here"
        )


def keep_flags(paths: Paths, cleaning: Cleaning) -> tuple[bytearray, Counter[str]]:
    """Return for every pair of tokenised lines whether it is kept (1, 0), and counts by verdict."""
    flags, verdicts = bytearray(), Counter[str]()
    with paths[0].open("rb") as sources, paths[1].open("rb") as targets:
        for source, target in zip(sources, targets, strict=True):
            verdict = cleaning.verdict(len(source.split()), len(target.split()))
            verdicts[verdict] += 1
            flags.append(verdict == "kept")
    return flags, verdicts


def count_text_lines(path: Path) -> int:
    """Lines of a file that may be packed."""
    with reading(path) as lines:
        return sum(1 for _ in lines)
