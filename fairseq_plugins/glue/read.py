"""GLUE's files: tab-separated, one example per line, quotation marks without meaning."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import decoded, read_bytes
from fairseq_plugins.glue.tasks import GlueTask, Split


@dataclass(frozen=True)
class Example:
    """One or two sentences; `label` is None in a file without labels."""

    sentences: tuple[str, ...]
    label: str | None


@dataclass(frozen=True)
class SplitText:
    """The examples of a file.

    file: name of the file. sha256: of the unpacked file. dropped: number of malformed lines.
    """

    file: str
    sha256: str
    examples: tuple[Example, ...]
    dropped: int


def read_split(path: Path, task: GlueTask, split: Split) -> SplitText:
    """Read and check a file.

    Raises:
        DataError: the file is damaged or empty, or a line has a missing column, a wrong number of
            fields or an unknown label.
    """
    data = read_bytes(path)
    lines = read_lines(path, data)
    header = split.header
    if header is None:
        _, first = next(lines, (1, ""))
        header = tuple(first.split("\t"))
    columns = [_column(path, header, name) for name in split.sentences]
    label_column = None if split.label is None else _column(path, header, split.label)
    drops = task.drops_malformed and split.label is not None
    examples, dropped = [], 0
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(header):
            if drops:
                dropped += 1
                continue
            raise DataError(
                f"{path}, line {number}: must have {len(header)} tab-separated fields, "
                f"but has {len(fields)}"
            )
        label = None if label_column is None else fields[label_column].strip()
        problem = None if label is None else task.labels.problem(label)
        if problem:
            raise DataError(f"{path}, line {number}: the label {problem}, but is {label!r}")
        examples.append(Example(tuple(fields[column] for column in columns), label))
    if not examples:
        raise DataError(f"{path} holds no examples")
    return SplitText(split.file, hashlib.sha256(data).hexdigest(), tuple(examples), dropped)


def read_lines(path: Path, data: bytes) -> Iterator[tuple[int, str]]:
    r"""Yield lines with their numbers, from 1 on; only \n and \r\n end one.

    Empty lines at the end are left out.

    Raises:
        DataError: with file and line: not UTF-8.
    """
    lines = decoded(io.BytesIO(data.rstrip(b"\r\n")), path)
    yield from enumerate((line.removesuffix("\n").removesuffix("\r") for line in lines), start=1)


def _column(path: Path, header: tuple[str, ...], name: str) -> int:
    if name not in header:
        raise DataError(
            f"{path}, line 1: must have a column {name!r}, but has {', '.join(map(repr, header))}"
        )
    return header.index(name)
