"""Data folders for fairseq, from raw text to binarised splits: the Python behind scripts/prepare_*.

    python -m fairseq_plugins.reproduce.prepare toy|wikitext2|wikitext103 [options]

A folder appears complete or not at all: it is built beside its place and renamed into it. Its
data.json says what it was made from, so that a result can record its data and a second call can
see that there is nothing to do.
"""

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins import corpus as toy
from fairseq_plugins.corpus.published import (
    SPLITS,
    WIKITEXT_2,
    WIKITEXT_103,
    CorpusError,
    Measured,
    PublishedCorpus,
    RawSource,
    copy_measured,
    download,
)

PREPARATION_VERSION = 1  # raise when the same request would give other files
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's, absent from dict.txt
SMALLEST_VOCABULARY = 16


def report(message: str) -> None:
    print(f"prepare: {message}", flush=True)


@dataclass(frozen=True)
class Folder:
    """A data folder to make: max_words is the size of its dictionary, None for all words."""

    path: Path
    request: Mapping[str, Any]
    max_words: int | None = None
    dictionary_size: int | None = None

    def is_done(self) -> bool:
        """Whether it was made by the same request and nothing was removed since."""
        names = ["dict.txt"] + [f"{s}.{suffix}" for s in SPLITS for suffix in ("bin", "idx")]
        try:
            made = json.loads((self.path / "data.json").read_text())
        except (OSError, json.JSONDecodeError):
            return False
        return made.get("request") == self.request and all(
            (self.path / name).is_file() for name in names
        )

    def refuse_foreign(self) -> None:
        """Raise CorpusError where the path holds something that was not made here."""
        occupied = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if occupied and not (self.path / "data.json").is_file():
            raise CorpusError(
                f"--output {self.path} exists and was not made by this command; move it away"
            )


@contextmanager
def building(output: Path) -> Iterator[Path]:
    """An empty folder beside `output`, removed at the end; one process at a time per output."""
    output.parent.mkdir(parents=True, exist_ok=True)
    work = output.parent / f".{output.name}.building"
    with (output.parent / f".{output.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def replace_folder(built: Path, output: Path) -> None:
    """Put a complete folder in its place, in which an older one may stand."""
    old = built.parent / "replaced"
    if output.exists():
        output.rename(old)
    built.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def binarise(
    work: Path, files: Mapping[str, str], destination: str, workers: int, max_words: int | None
) -> list[str]:
    """Run fairseq-preprocess on files named relative to `work`; return the command's arguments."""
    arguments = ["-m", "fairseq_cli.preprocess", "--only-source"]
    for split in SPLITS:
        arguments += [f"--{split}pref", files[split]]
    arguments += ["--destdir", destination, "--workers", str(workers)]
    if max_words is not None:
        arguments += ["--nwordssrc", str(max_words)]
    subprocess.run([sys.executable, *arguments], cwd=work, check=True)
    return arguments


def dictionary_words(folder: Path) -> list[str]:
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines()
    return [line.rsplit(" ", 1)[0] for line in lines]


def describe(word_counts: Counter[str], found: Measured, known: set[str]) -> dict[str, Any]:
    """One split for data.json; an unknown word is one whose input the model sees as <unk>."""
    unknown = sum(n for word, n in word_counts.items() if word not in known)
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
    keep_raw: bool = False,
) -> None:
    """Binarise checked raw files that lie in work/raw into a folder, with its data.json."""
    files = {split: f"raw/{found[split].path.name}" for split in SPLITS}
    arguments = binarise(work, files, "binarised", workers, folder.max_words)
    built = work / "binarised"
    words = dictionary_words(built)
    size = len(words) + len(SPECIAL_SYMBOLS)
    if folder.dictionary_size not in (None, size):
        raise CorpusError(f"dictionary: expected {folder.dictionary_size} symbols, found {size}")
    known = set(words)
    about = {
        "request": folder.request,
        "origin": origin,
        "splits": {s: describe(found[s].word_counts, found[s], known) for s in SPLITS},
        "dictionary_size": size,
        "command": ["python", *arguments],
    }
    (built / "data.json").write_text(json.dumps(about, indent=1) + "\n")
    if keep_raw:
        shutil.copytree(work / "raw", built / "raw")
    replace_folder(built, folder.path)
    rates = ", ".join(f"{s} {about['splits'][s]['unknown_rate']:.2%}" for s in SPLITS)
    report(f"{folder.path}: dictionary of {size} symbols; unknown words: {rates}")


def prepare_published(
    corpus: PublishedCorpus,
    output: Path,
    *,
    source: Path | None = None,
    url: str | None = None,
    workers: int = 1,
    mini_words: int | None = None,
) -> None:
    """Make `output`, and `<output>-mini` with a dictionary of `mini_words`, where not yet made.

    source: a folder or zip that holds the raw files; without one the zip is downloaded from
    `url` (default: the corpus's own) to `downloads` beside output, which is kept.
    Raises CorpusError for anything missing, damaged or different; nothing is then written.
    """
    check_counts(workers, mini_words)
    base = {"preparation": PREPARATION_VERSION, "corpus": corpus.name}
    folders = [Folder(output, base | {"max_words": None}, None, corpus.dictionary_size)]
    if mini_words is not None:
        mini = output.with_name(output.name + "-mini")
        folders.append(Folder(mini, base | {"max_words": mini_words}, mini_words))
    for folder in folders:
        folder.refuse_foreign()
    if source is not None:
        raw = RawSource(source, corpus)
        raw.require()
    with building(output) as work:
        wanted = [folder for folder in folders if not folder.is_done()]
        report_done(folders, wanted)
        if not wanted:
            return
        if source is None:
            zip_path = output.parent / "downloads" / corpus.zip_name
            raw = RawSource(
                download(url or corpus.url, zip_path, corpus.zip_md5, report), corpus
            )
        # A folder's own name, not its path: data.json ends up in results that are shared.
        origin = {"from": source.resolve().name} if source else {"url": url or corpus.url}
        (work / "raw").mkdir()
        found = raw.unpack(work / "raw", report)
        for folder in wanted:
            make_folder(folder, work, found, origin, workers)


def prepare_toy(
    output: Path, *, seed: int, sentences: Mapping[str, int], workers: int = 1
) -> None:
    """Make the embedded corpus's folder: binarised splits, data.json, and the text under raw/."""
    check_counts(workers, None)
    request = {
        "preparation": PREPARATION_VERSION,
        "corpus": f"embedded-v{toy.VERSION}",
        "seed": seed,
        "sentences": dict(sentences),
    }
    folder = Folder(output, request)
    folder.refuse_foreign()
    with building(output) as work:
        report_done([folder], [] if folder.is_done() else [folder])
        if folder.is_done():
            return
        toy.write_corpus(work / "raw", seed=seed, sentences=sentences)
        found = {}
        for split in SPLITS:
            with (work / "raw" / f"{split}.txt").open("rb") as lines:
                found[split] = copy_measured(lines, work / f"{split}.txt")
        make_folder(folder, work, found, {"generated": request["corpus"]}, workers, keep_raw=True)


def check_counts(workers: int, mini_words: int | None) -> None:
    if workers < 1:
        raise CorpusError(f"--workers must be at least 1, but is {workers}")
    if mini_words is not None and mini_words < SMALLEST_VOCABULARY:
        raise CorpusError(
            f"--mini-words must be at least {SMALLEST_VOCABULARY}, but is {mini_words}"
        )


def report_done(folders: Sequence[Folder], wanted: Sequence[Folder]) -> None:
    for folder in folders:
        if folder not in wanted:
            report(f"{folder.path} is already there; remove it to make it anew")


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prepare", description="Make data folders for fairseq.")
    commands = parser.add_subparsers(dest="corpus", required=True)
    for name, published in (("wikitext2", WIKITEXT_2), ("wikitext103", WIKITEXT_103)):
        command = commands.add_parser(
            name, prog=f"prepare_{name}.sh", help=f"{published.name}, downloaded or --from DIR"
        )
        command.add_argument(
            "--output", type=Path, default=Path("data", published.name), metavar="DIR",
            help=f"folder to make (default: data/{published.name} in the repository)",
        )
        where = command.add_mutually_exclusive_group()
        where.add_argument(
            "--from", dest="source", type=Path, metavar="DIR",
            help="folder with wiki.{train,valid,test}.tokens, plain or .xz, or the official zip",
        )
        where.add_argument(
            "--url", help=f"where the official zip is downloaded from (default: {published.url})"
        )
        if published is WIKITEXT_2:
            command.add_argument(
                "--mini-words", type=int, default=8000, metavar="N",
                help="dictionary size of the second folder, DIR-mini (default: 8000)",
            )
    command = commands.add_parser(
        "toy", prog="prepare_toy.sh", help="the embedded corpus, generated"
    )
    command.add_argument(
        "--output", type=Path, default=Path("data", "toy"), metavar="DIR",
        help="folder to make (default: data/toy in the repository)",
    )
    toy.add_arguments(command)
    for command in commands.choices.values():
        command.add_argument(
            "--workers", type=int, default=2, metavar="N",
            help="processes that binarise (default: 2)",
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    args = get_parser().parse_args(arguments)
    try:
        if args.corpus == "toy":
            sentences = toy.sentences_from(args)
            prepare_toy(args.output, seed=args.seed, sentences=sentences, workers=args.workers)
        else:
            prepare_published(
                WIKITEXT_2 if args.corpus == "wikitext2" else WIKITEXT_103,
                args.output,
                source=args.source,
                url=args.url,
                workers=args.workers,
                mini_words=getattr(args, "mini_words", None),
            )
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"prepare: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
