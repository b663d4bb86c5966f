"""Data folders of SQuAD: the Python behind scripts/prepare_squad.sh.

python -m fairseq_plugins.squad prepare --version 1.1 --bpe DIR [--from DIR] [options]
"""

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_plugins.corpus.gpt2_bpe import DICTIONARY_FILE, FILES, load_encoder
from fairseq_plugins.corpus.published import CorpusError, download
from fairseq_plugins.reproduce.data_folders import Folder, building, replace_folder, report
from fairseq_plugins.squad.examples import VERSIONS, SquadFile, read_squad
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
        CorpusError: naming the splits that are not there.
    """
    if not folder.is_dir():
        raise CorpusError(f"--from must be an existing folder, but is {folder}")
    found, absent = {}, []
    for split, name in FILE_SPLITS.items():
        names = [f"{name}-v{version}.json", f"v{version}/{name}-part.json"]
        paths = [folder / (name + suffix) for name in names for suffix in ("", ".xz")]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            absent.append(" or ".join(names))
        else:
            found[split] = path
    if absent:
        raise CorpusError(f"{folder} does not hold {', nor '.join(absent)} (plain or as .xz)")
    return found


def download_files(folder: Path, version: str) -> dict[str, Path]:
    """Split -> official file, fetched into a folder where it is not there yet."""
    found = {}
    for split, name in FILE_SPLITS.items():
        file = f"{name}-v{version}.json"
        found[split] = download(f"{ADDRESS}/{file}", folder / file, MD5[file], report)
    return found


def prepare(
    output: Path,
    *,
    version: str,
    bpe: Path,
    source: Path | None = None,
    files: Mapping[str, Path] | None = None,
    corpus: str = "squad",
    sizes: WindowSizes | None = None,
) -> None:
    """Make a data folder where it is not made yet.

    Args:
        output: the folder.
        version: of SQuAD.
        bpe: folder of pieces.
        source: folder with the files; without one they are downloaded beside ``output``.
        files: split -> file, instead of both.
        corpus: name of the data, for data.json.
        sizes: of the windows.

    Raises:
        CorpusError: for anything missing, damaged or of another version; nothing is then written.
    """
    sizes = sizes or WindowSizes()
    pieces = Pieces.load(bpe)
    request = {
        "preparation": PREPARATION_VERSION,
        "corpus": f"{corpus}-v{version}",
        "version": version,
        "pieces": pieces.fingerprint(),
        **asdict(sizes),
    }
    folder = SquadFolder(output, request)
    folder.refuse_foreign()
    if files is None and source is not None:
        files = find_files(source, version)
    with building(output) as work:
        if folder.is_done():
            report(f"{output} is already there; remove it to make it anew")
            return
        origin: dict[str, Any] = {"from": source.resolve().name} if source else {}
        if files is None:
            files = download_files(output.parent / "downloads", version)
            origin = {"url": ADDRESS}
        built = work / "built"
        (built / "raw").mkdir(parents=True)
        squads = {split: _read(files[split], version) for split in SPLITS}
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--version", choices=VERSIONS, required=True, help="of SQuAD")
    parser.add_argument(
        "--bpe",
        type=Path,
        required=True,
        metavar="DIR",
        help="pieces the model is pre-trained with: encoder.json, vocab.bpe and dict.txt",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder with {train,dev}-vVERSION.json or vVERSION/{train,dev}-part.json, plain or "
        ".xz (default: the official files are downloaded)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to make (default: data/squad-vVERSION)",
    )
    parser.add_argument("--data-root", type=Path, default=Path("data"), help=argparse.SUPPRESS)
    add_sizes(parser)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options of the windows."""
    default = WindowSizes()
    for name, text in (
        ("max_length", "tokens of a window, with the question and four special ones"),
        ("stride", "tokens from the beginning of one window to that of the next"),
        ("max_query_length", "tokens of a question; the rest is cut off"),
    ):
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=int,
            default=getattr(default, name),
            metavar="N",
            help=f"{text} (default: {getattr(default, name)})",
        )


def sizes_from(args: argparse.Namespace) -> WindowSizes:
    """What `add_sizes` added."""
    return WindowSizes(args.max_length, args.stride, args.max_query_length)


def run(args: argparse.Namespace) -> None:
    """The command."""
    prepare(
        args.output or args.data_root / f"squad-v{args.version}",
        version=args.version,
        bpe=args.bpe,
        source=args.source,
        sizes=sizes_from(args),
    )
