"""Data folders as fairseq reads them: binarised splits, the dictionary, and a data.json.

A folder appears complete or not at all: it is built beside its place and renamed into it. Its
data.json says what it was made from, so that a result can record its data and a second call can
see that there is nothing to do.
"""

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.published import SPLITS, Measured, copy_measured

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's, absent from dict.txt
# Single characters that a dictionary of pieces has room for beside the merges; the rarer ones,
# of foreign scripts, become <unk>.
ROOM_FOR_CHARACTERS = 200


def report(message: str) -> None:
    print(f"prepare: {message}", flush=True)


@dataclass(frozen=True)
class Folder:
    """A data folder to make.

    merges: of the byte-pair encoding that splits its words into pieces, None for whole words.
    dictionary_size: what must come out, where that is known.
    """

    path: Path
    request: Mapping[str, Any]
    merges: int | None = None
    dictionary_size: int | None = None

    @property
    def max_words(self) -> int | None:
        """The size of its dictionary, None for everything that occurs."""
        return None if self.merges is None else self.merges + ROOM_FOR_CHARACTERS

    @property
    def files(self) -> tuple[str, ...]:
        """What it must hold beside data.json."""
        return ("dict.txt", *(f"{s}.{suffix}" for s in SPLITS for suffix in ("bin", "idx")))

    def is_done(self) -> bool:
        """Whether it was made by the same request and nothing was removed since."""
        try:
            made = json.loads((self.path / "data.json").read_text())
        except (OSError, json.JSONDecodeError):
            return False
        return made.get("request") == self.request and all(
            (self.path / name).is_file() for name in self.files
        )

    def refuse_foreign(self) -> None:
        """Raise DataError where the path holds something that was not made here."""
        occupied = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if occupied and not (self.path / "data.json").is_file():
            raise DataError(
                f"--output {self.path} exists and was not made by this command; move it away"
            )


@contextmanager
def building(output: Path, resume: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A folder beside `output` to build in; one process at a time per output.

    It begins empty and is removed at the end. With `resume`, which says what is built from what,
    a folder that was left by the same is taken over, and one is left where the work is cut off:
    it is removed when the work is done or its input refused (DataError).
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    work = output.parent / f".{output.name}.building"
    with (output.parent / f".{output.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if resume is None or not _same_json(work / "building.json", resume):
            shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
            work.mkdir()
            (work / "building.json").write_text(json.dumps(resume))
        keep = False
        try:
            yield work
        except DataError:
            raise
        except BaseException:
            keep = resume is not None
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


def _same_json(path: Path, value: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(path.read_text()) == value)
    except (OSError, json.JSONDecodeError):
        return False


def replace_folder(built: Path, output: Path) -> None:
    """Put a complete folder in its place, in which an older one may stand."""
    old = built.parent / "replaced"
    if output.exists():
        output.rename(old)
    built.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def binarise(
    work: Path,
    files: Mapping[str, str],
    destination: str,
    workers: int,
    max_words: int | None,
    dictionary: str | None = None,
) -> list[str]:
    """Run fairseq-preprocess on files named relative to `work`; return the command's arguments.

    dictionary: a dict.txt to use, by default one of the training words is made. The command's
    output is kept in <destination>/preprocess.log.
    """
    arguments = ["-m", "fairseq_cli.preprocess", "--only-source"]
    for split in SPLITS:
        arguments += [f"--{split}pref", files[split]]
    arguments += ["--destdir", destination, "--workers", str(workers)]
    if max_words is not None:
        arguments += ["--nwordssrc", str(max_words)]
    if dictionary is not None:
        arguments += ["--srcdict", dictionary]
    preprocess(work, arguments, workers)
    return arguments


def preprocess(work: Path, arguments: Sequence[str], workers: int) -> None:
    """Run fairseq-preprocess in `work`, its output in the error where it fails."""
    report(f"running fairseq-preprocess with {workers} workers")
    subprocess.run(
        [sys.executable, *arguments],
        cwd=work,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def split_into_pieces(
    work: Path, found: Mapping[str, Measured], merges: int
) -> dict[str, Measured]:
    """Learn a byte-pair encoding on the training split and write every split in its pieces.

    <unk>, which published text may already have, stays one piece. The codes are left in
    work/codes.
    """
    report(f"learning and applying {merges} merges")
    with found["train"].path.open(encoding="utf-8") as text, (work / "codes").open("w") as codes:
        learn_bpe(text, codes, merges)
    with (work / "codes").open(encoding="utf-8") as codes:
        bpe = BPE(codes, glossaries=["<unk>"])
    (work / "pieces").mkdir()
    pieces = {}
    for split, words in found.items():
        with words.path.open(encoding="utf-8") as text:
            lines = (bpe.process_line(line).encode() for line in text)
            pieces[split] = copy_measured(lines, work / "pieces" / f"{split}.txt")
    return pieces


def dictionary_words(folder: Path) -> list[str]:
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines()
    return [line.rsplit(" ", 1)[0] for line in lines]


def describe(found: Measured, known: set[str]) -> dict[str, Any]:
    """One split for data.json; an unknown word is one whose input the model sees as <unk>."""
    unknown = sum(n for word, n in found.word_counts.items() if word not in known)
    return {
        "file": found.path.name,
        "sha256": found.sha256,
        "bytes": found.bytes,
        "lines": found.lines,
        "words": found.words,
        "unknown_words": unknown,
        "unknown_rate": round(unknown / max(found.words, 1), 6),
    }


def make_folder(
    folder: Folder,
    work: Path,
    found: Mapping[str, Measured],
    origin: Mapping[str, Any],
    workers: int,
    text: Path | None = None,
) -> None:
    """Binarise the checked files in work/raw into a folder, with data.json and `text` as raw/."""
    raw = {s: {"words": found[s].words, "sha256": found[s].sha256} for s in SPLITS}
    if folder.merges is not None:
        found = split_into_pieces(work, found, folder.merges)
    files = {split: found[split].path.relative_to(work).as_posix() for split in SPLITS}
    arguments = binarise(work, files, "binarised", workers, folder.max_words)
    built = work / "binarised"
    words = dictionary_words(built)
    size = len(words) + len(SPECIAL_SYMBOLS)
    if folder.dictionary_size not in (None, size):
        raise DataError(f"dictionary: expected {folder.dictionary_size} symbols, found {size}")
    known = set(words)
    splits = {s: describe(found[s], known) for s in SPLITS}
    about = {
        "request": folder.request,
        "origin": origin,
        "raw": raw,
        "splits": splits,
        "dictionary_size": size,
        "command": ["python", *arguments],
    }
    (built / "data.json").write_text(json.dumps(about, indent=1) + "\n")
    if text is not None:
        text.rename(built / "raw")
    if folder.merges is not None:
        (work / "codes").rename(built / "codes")
    replace_folder(built, folder.path)
    rates = ", ".join(f"{s} {splits[s]['unknown_rate']:.2%}" for s in SPLITS)
    report(f"{folder.path}: dictionary of {size} symbols; unknown words: {rates}")
