"""Downloads of GLUE's official files.

No checksums are published, so that the sha256 of each download is recorded instead.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.archives import Zip
from fairseq_plugins.data.download import download
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.glue.tasks import GlueTask

ORIGIN_FILE = "origin.json"


def fetch(task: GlueTask, downloads: Path) -> Path:
    """Download a task's files to <task>/ in `downloads`, unless present; return `downloads`.

    Raises:
        DataError: a download fails or is damaged.
    """
    folder = downloads / task.name
    if (folder / ORIGIN_FILE).is_file():
        return downloads
    if not task.addresses:
        raise DataError(f"{task.name} is generated and has no official address")
    paths = []
    for url in task.addresses:
        path = downloads / PurePosixPath(url).name
        paths.append(download(url, path, None, instead="--from DIR"))
    try:
        files = _mrpc(paths) if len(paths) == 3 else _from_zip(task, paths[0])
    except (DataError, UnicodeDecodeError) as error:
        names = ", ".join(path.name for path in paths)
        raise DataError(f"{downloads}: {names} damaged ({error}); remove and repeat") from error
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    origin = {
        address: {"sha256": sha256(path)}
        for address, path in zip(task.addresses, paths, strict=True)
    }
    # Written last: its presence means that the others are complete.
    (folder / ORIGIN_FILE).write_text(json.dumps(origin, indent=1) + "\n")
    return downloads


def _from_zip(task: GlueTask, path: Path) -> dict[str, bytes]:
    """Read the expected members of the task's folder in a zip."""
    archive, files = Zip(path), {}
    for split in task.splits:
        if (name := f"{task.name}/{split.file}") in archive:
            with archive.open(name) as member:
                files[split.file] = member.read()
        elif split.required:
            raise DataError(f"{path} lacks {name}")
    return files


_TEST_HEADER = ("index", "#1 ID", "#2 ID", "#1 String", "#2 String")


def _mrpc(paths: Sequence[Path]) -> dict[str, bytes]:
    """Build MRPC's three files in GLUE's layout: a list of pairs splits the training file."""
    train, test, dev_ids = ([*_rows(path)] for path in paths)
    chosen = {tuple(row[:2]) for row in dev_ids}
    for path, rows in ((paths[0], train), (paths[1], test)):
        for number, row in enumerate(rows, start=1):
            if len(row) != len(train[0]) or len(row) < 3:
                raise DataError(f"{path}, line {number}: must have 5 fields, but has {len(row)}")
    header, pairs = train[0], train[1:]
    dev = [row for row in pairs if (row[1], row[2]) in chosen]
    rest = [row for row in pairs if (row[1], row[2]) not in chosen]
    if not dev or not rest:
        raise DataError(f"{paths[2]} does not split the pairs of {paths[0].name}")
    numbered = [[str(number), *row[1:]] for number, row in enumerate(test[1:])]
    return {
        "train.tsv": _tsv([header, *rest]),
        "dev.tsv": _tsv([header, *dev]),
        "test.tsv": _tsv([_TEST_HEADER, *numbered]),
    }


def _rows(path: Path) -> Iterator[list[str]]:
    text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
    return csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)


def _tsv(rows: Sequence[Sequence[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()
