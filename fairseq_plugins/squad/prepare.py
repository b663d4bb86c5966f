"""Data folders of SQuAD, from the official files or generated questions."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import PACKED, find_packed
from fairseq_plugins.data.folders import Folder, building, replace_folder, report
from fairseq_plugins.data.gpt2_bpe import DICTIONARY_FILE, FILES, load_encoder
from fairseq_plugins.data.published import download
from fairseq_plugins.squad import generated as questions
from fairseq_plugins.squad.examples import SquadFile, read_squad
from fairseq_plugins.squad.features import (
    FeatureTable,
    Specials,
    Window,
    WindowSizes,
    make_windows,
)
from fairseq_plugins.squad.folder import SPLITS, features_path, files_of, raw_path
from fairseq_plugins.squad.offsets import encode_with_offsets
from fairseq_plugins.squad.recovery import count_recovered

PREPARATION_VERSION = 1  # raise when the same request would give other files
REPORTS = 5  # of progress, per split
TOY_SIZES = WindowSizes(max_length=64, stride=32, max_query_length=8)
ADDRESS = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
FILE_SPLITS = {"train": "train", "valid": "dev"}  # the test sets are not published
# md5 of the official files, as torchtext holds them to.
MD5 = {
    "train-v1.1.json": "981b29407e0affa3b1b156f72073b945",
    "dev-v1.1.json": "3e85deb501d4e538b6bc56f786231552",
    "train-v2.0.json": "62108c273c268d70893182d5cf8df740",
    "dev-v2.0.json": "246adae8b7002f8679c027697b0b7cf8",
}


class SquadFolder(Folder):
    """A folder to make, with the files that `squad.folder` lists."""

    @property
    def files(self) -> tuple[str, ...]:
        return ("dict.txt", *(name for split in SPLITS for name in files_of(split)))


@dataclass(frozen=True)
class Pieces:
    """The encoder of a folder of pieces and its dictionary.

    index: the dictionary's id of each piece's id.
    """

    encoder: Any
    dictionary: Dictionary
    index: Mapping[int, int]
    folder: Path

    @classmethod
    def load(cls, folder: Path) -> "Pieces":
        """Read a folder with encoder.json, vocab.bpe and dict.txt."""
        encoder = load_encoder(folder)
        dictionary = Dictionary.load(str(folder / DICTIONARY_FILE))
        index = {i: dictionary.index(str(i)) for i in encoder.encoder.values()}
        return cls(encoder, dictionary, index, folder)

    def indices(self, ids: Iterable[int]) -> list[int]:
        """Ids of the dictionary for ids of the encoder."""
        return [self.index[i] for i in ids]

    def fingerprint(self) -> str:
        """One sha256 over the three files."""
        digest = hashlib.sha256()
        for name in FILES:
            digest.update(hashlib.sha256((self.folder / name).read_bytes()).digest())
        return digest.hexdigest()


def find_files(folder: Path, version: str) -> dict[str, Path]:
    """Split -> file in a folder, official (train-v1.1.json) or a part (v1.1/train-part.json).

    Raises:
        DataError: naming the splits that are not there.
    """
    if not folder.is_dir():
        raise DataError(f"--from must be an existing folder, but is {folder}")
    found, absent = {}, []
    for split, name in FILE_SPLITS.items():
        names = [f"{name}-v{version}.json", f"v{version}/{name}-part.json"]
        path = find_packed(folder, *names)
        if path is None:
            absent.append(" or ".join(names))
        else:
            found[split] = path
    if absent:
        raise DataError(f"{folder} does not hold {', nor '.join(absent)} ({PACKED})")
    return found


def download_files(folder: Path, version: str) -> dict[str, Path]:
    """Split -> official file, fetched into a folder where it is not there yet."""
    found = {}
    for split, name in FILE_SPLITS.items():
        file = f"{name}-v{version}.json"
        address, path = f"{ADDRESS}/{file}", folder / file
        found[split] = download(address, path, MD5[file], report, elsewhere="--from DIR takes")
    return found


Gather = Callable[[Path], Mapping[str, Path]]


def prepare(
    output: Path,
    *,
    version: str,
    bpe: Path,
    source: Path | None = None,
    sizes: WindowSizes | None = None,
) -> None:
    """Make a data folder of the official files where it is not made yet.

    Args:
        output: the folder.
        version: of SQuAD.
        bpe: folder of pieces.
        source: folder with the files; without one they are downloaded beside ``output``.
        sizes: of the windows.

    Raises:
        DataError: for anything missing, damaged or of another version; nothing is then written.
    """
    request = {"corpus": f"squad-v{version}", "version": version}
    if source is not None:
        files = find_files(source, version)
        origin = {"from": source.resolve().name}
        _make_folder(output, request, origin, bpe, lambda _: files, sizes)
    else:
        downloads = output.parent / "downloads"
        origin = {"url": ADDRESS}
        _make_folder(
            output, request, origin, bpe, lambda _: download_files(downloads, version), sizes
        )


def prepare_toy(
    output: Path,
    *,
    version: str,
    bpe: Path,
    seed: int,
    texts: Mapping[str, int],
    sizes: WindowSizes | None = None,
) -> None:
    """Make a data folder of generated questions, `texts` texts of each split."""
    name = f"embedded-questions-v{questions.VERSION}"
    request = {"corpus": name, "version": version, "seed": seed, "texts": dict(texts)}

    def gather(work: Path) -> Mapping[str, Path]:
        return questions.write_questions(work, seed=seed, version=version, texts=texts)

    _make_folder(output, request, {"generated": name}, bpe, gather, sizes or TOY_SIZES)


def _make_folder(
    output: Path,
    request: Mapping[str, Any],
    origin: Mapping[str, str],
    bpe: Path,
    gather: Gather,
    sizes: WindowSizes | None,
) -> None:
    """Make a folder from the files that `gather` finds, or writes into the folder it is given."""
    sizes = sizes or WindowSizes()
    pieces = Pieces.load(bpe)
    request = {
        "preparation": PREPARATION_VERSION,
        **request,
        "pieces": pieces.fingerprint(),
        **asdict(sizes),
    }
    folder = SquadFolder(output, request)
    folder.refuse_foreign()
    with building(output) as work:
        if folder.is_done():
            report(f"{output} is already there; remove it to make it anew")
            return
        files = gather(work / "files")
        built = work / "built"
        (built / "raw").mkdir(parents=True)
        squads = {split: _read(files[split], request["version"]) for split in SPLITS}
        about = {
            split: _make_split(built, split, files[split].name, squad, pieces, sizes)
            for split, squad in squads.items()
        }
        pieces.dictionary.save(str(built / "dict.txt"))
        facts = {
            "request": request,
            "origin": origin,
            "splits": about,
            "dictionary_size": len(pieces.dictionary),
        }
        (built / "data.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        replace_folder(built, output)
    counts = ", ".join(f"{s} {about[s]['windows']} windows" for s in SPLITS)
    report(f"{output}: {counts}")


def _read(path: Path, version: str) -> SquadFile:
    report(f"reading and checking {path.name}")
    return read_squad(path, version)


def _make_split(
    folder: Path, split: str, name: str, squad: SquadFile, pieces: Pieces, sizes: WindowSizes
) -> dict[str, Any]:
    """Write the files of a split; what data.json says of it."""
    size = len(pieces.dictionary) + 1  # of the model's, with <mask>
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), "mmap", size)
    table = FeatureTable()
    tokens = 0
    for window in _windows(squad, split, pieces, sizes, table):
        builder.add_item(torch.tensor(window.tokens))
        tokens += len(window.tokens)
    builder.finalize(str(folder / f"{split}.idx"))
    features = table.finish()
    features.save(features_path(folder, split))
    raw_path(folder, split).write_bytes(squad.raw)
    return {
        "file": name,
        "sha256": hashlib.sha256(squad.raw).hexdigest(),
        "questions": len(squad.questions),
        "windows": len(features),
        "tokens": tokens,
        "answers": count_recovered(squad, features),
    }


def _windows(
    squad: SquadFile, split: str, pieces: Pieces, sizes: WindowSizes, table: FeatureTable
) -> Iterator[Window]:
    """Every window of a file, after it was added to the table, like the texts; with progress."""
    specials = Specials(pieces.dictionary.bos(), pieces.dictionary.eos())
    number = 0
    step = max(1, len(squad.paragraphs) // REPORTS)
    for done, paragraph in enumerate(squad.paragraphs, start=1):
        text = encode_with_offsets(pieces.encoder, paragraph.context)
        tokens = pieces.indices(text.ids)
        table.add_text(text)
        for question in paragraph.questions:
            asked = pieces.indices(pieces.encoder.encode(question.text.strip()))
            for window in make_windows(question, asked, tokens, text, specials, sizes):
                table.add_window(number, window)
                yield window
            number += 1
        if done % step == 0:
            report(f"{split}: {done} of {len(squad.paragraphs)} texts")
