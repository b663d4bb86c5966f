"""Translation data for fairseq, from raw text: the Python behind scripts/prepare_parallel.sh,
scripts/prepare_wmt14_en_de.sh and scripts/prepare_toy_mt.sh.

python -m fairseq_plugins.translation.prepare files|wmt14|toy [options]
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.data.folders import building, report
from fairseq_plugins.data.prepare import FEWEST_MERGES, report_done
from fairseq_plugins.translation import generated as reordering
from fairseq_plugins.translation.folders import ParallelBuild, ParallelFolder
from fairseq_plugins.translation.moses import check_language
from fairseq_plugins.translation.parallel import Cleaning, ParallelText, Paths, find_text, sha256
from fairseq_plugins.translation.wmt14 import WMT14_EN_DE, ArchivedCorpus, ArchivedText, fetch

ROOT = Path(__file__).resolve().parents[2]
PREPARATION_VERSION = 1  # raise when the same request would give other files
# Names under which small corpora keep a split, the first that is there.
TRAIN_NAMES, VALID_NAMES, TEST_NAMES = ("train",), ("valid", "val", "dev"), ("test",)
WMT14_MERGES = 40_000  # LRPE, Table 7: dictionaries of 40,480 and 42,720 symbols
SMALL_MERGES = 4_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is made of the raw text: pieces, cleaning, and by how many processes.

    Raises:
        DataError: for a number out of range.
    """

    merges: int
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise DataError(f"--workers must be at least 1, but is {self.workers}")
        if self.merges < FEWEST_MERGES:
            raise DataError(f"--merges must be at least {FEWEST_MERGES}, but is {self.merges}")

    def folder(
        self, output: Path, corpus: Mapping[str, Any], languages: tuple[str, str]
    ) -> ParallelFolder:
        request = {
            "preparation": PREPARATION_VERSION,
            **corpus,
            "source": languages[0],
            "target": languages[1],
            "merges": self.merges,
            "cleaning": dataclasses.asdict(self.cleaning),
        }
        return ParallelFolder(output, request, self.merges, None, languages, self.cleaning)


def prepare_files(
    source: Path,
    output: Path,
    languages: tuple[str, str],
    settings: Settings,
    names: Mapping[str, Sequence[str]],
) -> None:
    """Make a folder of the files <name>.<language> in `source`.

    names: split -> names that its files may have, the first that is there.

    Raises:
        DataError: for anything missing, damaged or wrong; nothing is then written.
    """
    check_languages(*languages)
    if not source.is_dir():
        raise DataError(f"--from must be an existing folder, but is {source}")
    found: dict[str, Paths] = {}
    for split, stems in names.items():
        left, right = (
            find_text(source, [f"{stem}.{lang}" for stem in stems], "--from") for lang in languages
        )
        found[split] = (left, right)
    sums = {path.name: sha256(path) for paths in found.values() for path in paths}
    folder = settings.folder(output, {"corpus": source.resolve().name, "files": sums}, languages)
    folder.refuse_foreign()
    with building(output, folder.request) as work:
        report_done([folder], [] if folder.is_done() else [folder])
        if not folder.is_done():
            text = ParallelText([found["train"]], found["valid"], found["test"])
            origin = {"from": source.resolve().name}
            ParallelBuild(folder, work, settings.workers).make(text, origin)


def prepare_archived(
    corpus: ArchivedCorpus, output: Path, settings: Settings, source: Path | None = None
) -> None:
    """Make a folder of a published corpus, from a folder or downloaded beside `output`.

    Raises:
        DataError: for anything missing, damaged or wrong; nothing is then written.
    """
    folder = settings.folder(output, {"corpus": corpus.name}, corpus.languages)
    folder.refuse_foreign()
    text = ArchivedText(corpus, source or output.parent / "downloads" / corpus.name)
    if source is not None:
        text.require()
    if folder.is_done():
        report_done([folder], [])
        return
    if source is None:
        sums = fetch(corpus, text.folder, report)
        origin: dict[str, Any] = {"urls": [member.url for member in corpus.members]}
    else:
        sums = {path.name: sha256(path) for path in text.inputs()}
        origin = {"from": source.resolve().name}
    with building(output, {**folder.request, "files": sums}) as work:
        if not folder.is_done():
            raw = text.unpack(work / "unpacked", report)
            origin["sha256"] = sums
            ParallelBuild(folder, work, settings.workers).make(raw, origin)


def prepare_toy(output: Path, settings: Settings, *, seed: int, pairs: Mapping[str, int]) -> None:
    """Make the folder of the generated language pair."""
    for split, count in pairs.items():
        if count < 1:
            raise DataError(f"--{split}-pairs must be at least 1, but is {count}")
    languages = (reordering.SOURCE, reordering.TARGET)
    corpus = {"corpus": f"reordering-v{reordering.VERSION}", "seed": seed, "pairs": dict(pairs)}
    folder = settings.folder(output, corpus, languages)
    folder.refuse_foreign()
    with building(output, folder.request) as work:
        report_done([folder], [] if folder.is_done() else [folder])
        if folder.is_done():
            return
        found = {}
        for split, count in pairs.items():
            generated = reordering.generate_pairs(f"{seed}/{split}", count)
            left, right = (work / f"{split}.{language}" for language in languages)
            for path, lines in zip((left, right), zip(*generated, strict=True), strict=True):
                path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
            found[split] = (left, right)
        text = ParallelText([found["train"]], found["valid"], found["test"])
        ParallelBuild(folder, work, settings.workers).make(text, {"generated": corpus["corpus"]})


def check_languages(source: str, target: str) -> None:
    check_language("--src", source)
    check_language("--tgt", target)
    if source == target:
        raise DataError(f"--src and --tgt must differ, but both are {source!r}")


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prepare_parallel", description="Make translation folders for fairseq."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_files(commands)
    summary = "WMT14 English-German, downloaded or --from DIR"
    wmt14 = commands.add_parser(
        "wmt14", prog="prepare_wmt14_en_de.sh", help=summary, description=f"Make {summary}."
    )
    wmt14.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder with the archives of statmt.org, or with their texts (plain, .xz or .gz)",
    )
    _add_common_options(wmt14, "wmt14-en-de", WMT14_MERGES)
    summary = "the generated language pair"
    toy = commands.add_parser(
        "toy", prog="prepare_toy_mt.sh", help=summary, description=f"Make {summary}."
    )
    toy.add_argument("--seed", type=int, default=1, help="another seed, another text")
    for split, count in reordering.PAIRS.items():
        toy.add_argument(
            f"--{split}-pairs",
            type=int,
            default=count,
            metavar="N",
            help=f"pairs of sentences in {split} (default: {count})",
        )
    _add_common_options(toy, "toy-mt", 1000)
    return parser


def _add_files(commands: Any) -> None:
    files = commands.add_parser(
        "files",
        prog="prepare_parallel.sh",
        help="any pair of text files",
        description="Make a translation folder of text files <prefix>.<language>.",
    )
    files.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with the files, plain, .xz or .gz",
    )
    files.add_argument("--src", required=True, metavar="LANG", help="source language, as en")
    files.add_argument("--tgt", required=True, metavar="LANG", help="target language, as de")
    for split, names in (("train", TRAIN_NAMES), ("valid", VALID_NAMES), ("test", TEST_NAMES)):
        files.add_argument(
            f"--{split}-prefix",
            type=lambda name: (name,),
            default=names,
            metavar="NAME",
            help=f"name of the {split} files without .<language> (default: {' or '.join(names)})",
        )
    _add_common_options(files, "<name of DIR>-<src>-<tgt>", SMALL_MERGES)


def _add_common_options(parser: argparse.ArgumentParser, name: str, merges: int) -> None:
    add = parser.add_argument
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"folder to make (default: data/{name} in the repository)",
    )
    add(
        "--merges",
        type=int,
        default=merges,
        metavar="N",
        help=f"merges of the joint byte-pair encoding (default: {merges})",
    )
    rules = Cleaning()
    for option, default, what in (
        ("--min-length", rules.min_length, "pieces that a side of a training pair has at least"),
        ("--max-length", rules.max_length, "pieces that a side of a training pair has at most"),
        ("--max-ratio", rules.max_ratio, "length of the longer side over that of the shorter"),
    ):
        add(
            option,
            type=type(default),
            default=default,
            metavar="N",
            help=f"{what} (default: {default})",
        )
    add("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")


def _run(args: argparse.Namespace) -> None:
    cleaning = Cleaning(args.min_length, args.max_length, args.max_ratio)
    settings = Settings(args.merges, cleaning, args.workers)
    if args.command == "files":
        names = {
            "train": args.train_prefix,
            "valid": args.valid_prefix,
            "test": args.test_prefix,
        }
        default = Path(ROOT, "data", f"{args.source.resolve().name}-{args.src}-{args.tgt}")
        languages = (args.src, args.tgt)
        prepare_files(args.source, args.output or default, languages, settings, names)
    elif args.command == "wmt14":
        output = args.output or Path(ROOT, "data", "wmt14-en-de")
        prepare_archived(WMT14_EN_DE, output, settings, args.source)
    else:
        pairs = {split: getattr(args, f"{split}_pairs") for split in reordering.PAIRS}
        output = args.output or Path(ROOT, "data", "toy-mt")
        prepare_toy(output, settings, seed=args.seed, pairs=pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    args = get_parser().parse_args(arguments)
    return exit_status("prepare", lambda: _run(args))


if __name__ == "__main__":
    sys.exit(main())
