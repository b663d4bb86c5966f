"""Data folders for masked language models: text in GPT-2's pieces, as in fairseq's RoBERTa recipe.

Beside what every data folder holds (`data_folders`), there is bpe/ with the pieces, so that data
for fine-tuning can be prepared with the same ones.
"""

import hashlib
import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq.data.encoders.gpt2_bpe_utils import Encoder
from tqdm import tqdm

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.folders import (
    SPECIAL_SYMBOLS,
    Folder,
    binarise,
    building,
    describe,
    dictionary_words,
    replace_folder,
    report,
)
from fairseq_plugins.data.gpt2_bpe import (
    DICTIONARY_FILE,
    FILES,
    encode_line,
    learn_gpt2_bpe,
    load_encoder,
)
from fairseq_plugins.data.published import SPLITS, Measured, copy_measured

PREPARATION_VERSION = 1  # raise when the same request would give other files
BPE_FOLDER = "bpe"
_LINES_AT_ONCE = 500  # that a worker encodes

Gather = Callable[[Path], Mapping[str, Measured]]


def make_mlm_folder(
    folder: Folder, pieces: Path | None, gather: Gather, origin: Mapping[str, Any], workers: int
) -> None:
    """Make a folder, where it is not yet made by the same request.

    folder: what to make; `merges` are learned from the training text.
    pieces: a folder of pieces to use instead, where merges is None.
    gather: writes the text of every split into an existing folder and says what it contains.

    Raises:
        DataError: anything missing or damaged; nothing is then written.
    """
    folder.refuse_foreign()
    if pieces is not None:
        load_encoder(pieces)
    with building(folder.path) as work:
        if _is_done(folder):
            report(f"{folder.path} is already there; remove it to make it anew")
            return
        (work / "raw").mkdir()
        found = gather(work / "raw")
        for split in SPLITS:
            if not found[split].words:
                raise DataError(f"the {split} split has no text")
        _take_pieces(folder, pieces, found["train"].path, work / BPE_FOLDER)
        _binarise(folder, work, found, origin, workers)


def pieces_request(pieces: Path | None, merges: int | None) -> dict[str, Any]:
    """How a folder's request says its pieces."""
    if pieces is None:
        return {"merges": merges}
    sums = {}
    for name in FILES:
        with (pieces / name).open("rb") as stream:
            sums[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"merges": None, "pieces": sums}


def _is_done(folder: Folder) -> bool:
    return folder.is_done() and all((folder.path / BPE_FOLDER / name).is_file() for name in FILES)


def _take_pieces(folder: Folder, pieces: Path | None, text: Path, target: Path) -> None:
    target.mkdir()
    if pieces is None:
        assert folder.merges is not None
        report(f"learning {folder.merges} merges of bytes")
        with text.open(encoding="utf-8") as lines:
            learned = learn_gpt2_bpe(lines, folder.merges, target)
        if learned < folder.merges:
            report(f"only {learned} merges: no further pair occurs twice")
        return
    for name in FILES:
        shutil.copyfile(pieces / name, target / name)


_encoder: Encoder | None = None  # a worker's


def _load_worker(pieces: Path) -> None:
    global _encoder
    _encoder = load_encoder(pieces)


def _encode_in_worker(line: str) -> bytes:
    assert _encoder is not None
    return _as_line(_encoder, line)


def _as_line(encoder: Encoder, line: str) -> bytes:
    return (" ".join(encode_line(encoder, line)) + "\n").encode("ascii")


def encoded_lines(text: Path, pieces: Path, workers: int) -> Iterator[bytes]:
    """The lines of a text in pieces; empty lines stay, as with fairseq's `--keep-empty`."""
    with text.open(encoding="utf-8") as lines:
        if workers == 1:
            encoder = load_encoder(pieces)
            yield from (_as_line(encoder, line) for line in lines)
            return
        with multiprocessing.Pool(workers, _load_worker, (pieces,)) as pool:
            yield from pool.imap(_encode_in_worker, lines, _LINES_AT_ONCE)


def _encode_splits(work: Path, found: Mapping[str, Measured], workers: int) -> dict[str, Measured]:
    (work / "pieces").mkdir()
    encoded = {}
    for split in SPLITS:
        lines = encoded_lines(found[split].path, work / BPE_FOLDER, workers)
        # disable=None: shown on terminals only.
        shown = tqdm(
            lines, f"encoding {split}", total=found[split].lines, unit=" lines", disable=None
        )
        encoded[split] = copy_measured(shown, work / "pieces" / f"{split}.bpe")
    return encoded


def _binarise(
    folder: Folder,
    work: Path,
    found: Mapping[str, Measured],
    origin: Mapping[str, Any],
    workers: int,
) -> None:
    report(f"encoding {sum(found[s].words for s in SPLITS):,} words with {workers} workers")
    encoded = _encode_splits(work, found, workers)
    files = {split: encoded[split].path.relative_to(work).as_posix() for split in SPLITS}
    dictionary = f"{BPE_FOLDER}/{DICTIONARY_FILE}"
    arguments = binarise(work, files, "binarised", workers, None, dictionary)
    built = work / "binarised"
    words = dictionary_words(built)
    size = len(words) + len(SPECIAL_SYMBOLS)
    if folder.dictionary_size not in (None, size):
        raise DataError(f"dictionary: expected {folder.dictionary_size} symbols, found {size}")
    known = set(words)
    about = {
        "request": folder.request,
        "origin": origin,
        "raw": {s: {"words": found[s].words, "sha256": found[s].sha256} for s in SPLITS},
        "splits": {s: describe(encoded[s], known) for s in SPLITS},
        "dictionary_size": size,
        "command": ["python", *arguments],
    }
    (built / "data.json").write_text(json.dumps(about, indent=1) + "\n")
    (work / BPE_FOLDER).rename(built / BPE_FOLDER)
    replace_folder(built, folder.path)
    counts = ", ".join(f"{s} {encoded[s].words:,}" for s in SPLITS)
    report(f"{folder.path}: dictionary of {size} symbols; pieces: {counts}")
