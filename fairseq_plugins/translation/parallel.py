"""Parallel text: pairs of files whose n-th lines are translations of each other.

Files are plain, .xz or .gz. Only a line feed ends a line, as for the tools that made the corpora.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import decoded, reading
from fairseq_plugins.data.options import check_at_least, find_sources
from fairseq_plugins.translation.moses import printable

Paths = tuple[Path, Path]  # source and target


@dataclass(frozen=True)
class ParallelText:
    """Paths of the raw text of each split.

    train: pairs of files, to be concatenated. valid: None to hold out every `VALID_EVERY`-th
    training pair, as in the published preparation of WMT14.
    """

    train: Sequence[Paths]
    valid: Paths | None
    test: Paths


VALID_EVERY = 100


@dataclass(frozen=True)
class Cleaning:
    """Limits on training pairs' lengths in subwords, by default WMT14's.

    Raises:
        OptionError: no pair could meet the limits.
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
        """Return `kept`, or why a pair is dropped: `empty`, `short`, `long` or `ratio`."""
        least, most = sorted((source, target))
        if least == 0:
            return "empty"
        if least < self.min_length:
            return "short"
        if most > self.max_length:
            return "long"
        return "ratio" if most > least * self.max_ratio else "kept"


def find_texts(
    folder: Path, languages: tuple[str, str], names: Mapping[str, Sequence[str]]
) -> dict[str, Paths]:
    """Find the files <name>.<language> of each split, plain or packed.

    names: possible names of each split's files, by preference.

    Raises:
        DataError: one is missing.
    """
    files = {
        (split, language): [f"{stem}.{language}" for stem in stems]
        for split, stems in names.items()
        for language in languages
    }
    found = find_sources(folder, files)
    source, target = languages
    return {split: (found[split, source], found[split, target]) for split in names}


def read_pairs(paths: Paths, *, empty_lines: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield pairs of lines with their line feeds, without byte-order marks.

    empty_lines: whether lines may be empty, as in training text, which is cleaned later.

    Raises:
        DataError: the files differ in length, or a line is empty or not UTF-8.
    """
    with ExitStack() as stack:
        files = [decoded(stack.enter_context(reading(path)), path) for path in paths]
        pairs = itertools.zip_longest(*files)
        for number, lines in enumerate(pairs, start=1):
            if None in lines:
                _raise_length_mismatch(paths, number, lines, files)
            for path, line in zip(paths, lines, strict=True):
                if not empty_lines and not printable(line).strip():
                    raise DataError(
                        f"{path}, line {number}: must not be empty in a validation or test set"
                    )
            source, target = (line.removesuffix("\n").encode() + b"\n" for line in lines)
            yield source, target


def _raise_length_mismatch(
    paths: Paths, number: int, lines: Sequence[str | None], files: Sequence[Iterator[str]]
) -> None:
    longer = 0 if lines[1] is None else 1
    total = number + sum(1 for _ in files[longer])
    raise DataError(
        f"{paths[1 - longer]} has {number - 1} lines and {paths[longer]} has {total}: "
        f"line {number} of {paths[longer].name} has no translation"
    )


def keep_flags(paths: Paths, cleaning: Cleaning) -> tuple[bytearray, Counter[str]]:
    """Return whether each pair of tokenised lines is kept (1, 0), and counts by verdict."""
    flags, verdicts = bytearray(), Counter[str]()
    with paths[0].open("rb") as sources, paths[1].open("rb") as targets:
        for source, target in zip(sources, targets, strict=True):
            verdict = cleaning.verdict(len(source.split()), len(target.split()))
            verdicts[verdict] += 1
            flags.append(verdict == "kept")
    return flags, verdicts


def count_lines(path: Path) -> int:
    """Count the lines of a file, plain or packed."""
    with reading(path) as lines:
        return sum(1 for _ in lines)
