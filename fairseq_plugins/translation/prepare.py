"""Preparation of translation data, behind scripts/prepare_{parallel,wmt14_en_de,toy_mt}.sh.

python -m fairseq_plugins.translation.prepare files|wmt14|toy [options]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import data_folder
from fairseq_plugins.data import options
from fairseq_plugins.data.folders import SPLITS, build_folder
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.translation import generated
from fairseq_plugins.translation.folders import ParallelBuild, Settings
from fairseq_plugins.translation.moses import check_language
from fairseq_plugins.translation.parallel import Cleaning, ParallelText, find_texts
from fairseq_plugins.translation.wmt14 import WMT14_EN_DE, ArchivedCorpus, ArchivedText, fetch

# File names of a split in small corpora, by preference.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
WMT14_MERGES = 40_000  # LRPE, Table 7: dictionaries of 40,480 and 42,720 symbols
SMALL_MERGES = 4_000
TOY_MERGES = 1_000


def prepare_files(
    source: Path,
    output: Path,
    languages: tuple[str, str],
    settings: Settings,
    names: Mapping[str, Sequence[str]],
) -> None:
    """Make a folder from the files <name>.<language> in `source`.

    names: possible names of each split's files, by preference.

    Raises:
        OptionError: a language without rules, or twice the same.
        DataError: something is missing, damaged or wrong; nothing is written then.
    """
    check_language("--src", languages[0])
    check_language("--tgt", languages[1])
    if languages[0] == languages[1]:
        raise OptionError(f"--src and --tgt must differ, but both are {languages[0]!r}")
    found = find_texts(source, languages, names)
    sums = {path.name: sha256(path) for paths in found.values() for path in paths}
    corpus = {"corpus": source.resolve().name, "files": sums}
    folder = settings.folder(output, corpus, languages)
    with build_folder(folder, resume=folder.request) as work:
        if work:
            text = ParallelText([found["train"]], found["valid"], found["test"])
            origin = {"from": source.resolve().name}
            ParallelBuild(work, languages, settings).make(folder, text, origin)


def prepare_archived(
    corpus: ArchivedCorpus, output: Path, settings: Settings, source: Path | None = None
) -> None:
    """Make a folder from a published corpus, in `source` or downloaded next to `output`.

    Raises:
        DataError: something is missing, damaged or wrong; nothing is written then.
    """
    folder, sums = settings.folder(output, {"corpus": corpus.name}, corpus.languages), {}
    folder.refuse_other()
    text = ArchivedText(corpus, source or output.parent / "downloads" / corpus.name)
    if source is not None:
        text.require()
        sums = {path.name: sha256(path) for path in text.inputs()}
        folder = replace(folder, sums=sums)
    if folder.is_done():
        folder.report_done()
        return
    if source is None:
        sums = fetch(corpus, text.folder)
        origin: dict[str, Any] = {"urls": [member.url for member in corpus.members]}
    else:
        origin = {"from": source.resolve().name}
    with build_folder(folder, resume={**folder.request, "files": sums}) as work:
        if work:
            raw = text.unpack(work / "unpacked")
            origin["sha256"] = sums
            ParallelBuild(work, corpus.languages, settings).make(folder, raw, origin)


def prepare_toy(output: Path, settings: Settings, *, seed: int, pairs: Mapping[str, int]) -> None:
    """Make the folder of the generated language pair."""
    options.check_counts("pairs", pairs)
    languages = (generated.SOURCE, generated.TARGET)
    corpus = {"corpus": f"reordering-v{generated.VERSION}", "seed": seed, "pairs": dict(pairs)}
    folder = settings.folder(output, corpus, languages)
    with build_folder(folder, resume=folder.request) as work:
        if work:
            text = generated.write_pairs(work, seed=seed, pairs=pairs)
            origin = {"generated": corpus["corpus"]}
            ParallelBuild(work, languages, settings).make(folder, text, origin)


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(prog="fairseq-pe prepare", description="Make translation folders for fairseq.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_files(
        options.add_command(
            commands,
            "files",
            "prepare_parallel",
            "any pair of text files",
            "Make a translation folder of text files <prefix>.<language>.",
        )
    )
    summary = "WMT14 English-German, downloaded or --from DIR"
    wmt14 = options.add_command(commands, "wmt14", "prepare_wmt14_en_de", summary)
    text = "folder with the archives of statmt.org, or with their texts (plain, .xz or .gz)"
    options.add_source(wmt14, text)
    options.add_output(wmt14, "wmt14-en-de")
    _add_common_options(wmt14, WMT14_MERGES)
    toy = options.add_command(commands, "toy", "prepare_toy_mt", "the generated language pair")
    options.add_seed(toy, "text")
    options.add_counts(toy, "pairs", generated.PAIRS, "pairs of sentences in {split}")
    options.add_output(toy, "toy-mt")
    _add_common_options(toy, TOY_MERGES)
    return parser


def _add_files(parser: argparse.ArgumentParser) -> None:
    options.add_source(parser, "folder with the files, plain, .xz or .gz", required=True)
    parser.add_argument("--src", required=True, metavar="LANG", help="source language, as en")
    parser.add_argument("--tgt", required=True, metavar="LANG", help="target language, as de")
    for split, names in NAMES.items():
        parser.add_argument(
            f"--{split}-prefix",
            type=lambda name: (name,),
            default=names,
            metavar="NAME",
            help=f"name of the {split} files without .<language> (default: {' or '.join(names)})",
        )
    name = "<name of DIR>-<src>-<tgt>"
    options.add_folder(parser, "--output", f"folder to make (default: data/{name})")
    _add_common_options(parser, SMALL_MERGES)


def _add_common_options(parser: argparse.ArgumentParser, merges: int) -> None:
    rules = Cleaning()
    options.add_number(parser, "--merges", merges, "merges of the joint byte-pair encoding")
    text = "subwords of each side of a training pair, at {}"
    options.add_number(parser, "--min-length", rules.min_length, text.format("least"))
    options.add_number(parser, "--max-length", rules.max_length, text.format("most"))
    text = "length of the longer side over that of the shorter"
    options.add_number(parser, "--max-ratio", rules.max_ratio, text)
    options.add_workers(parser, "processes")
    options.add_force(parser)


def _run(args: argparse.Namespace) -> None:
    cleaning = Cleaning(args.min_length, args.max_length, args.max_ratio)
    settings = Settings(args.merges, cleaning, args.workers, args.force)
    if args.command == "files":
        names = {split: getattr(args, f"{split}_prefix") for split in SPLITS}
        default = data_folder(f"{args.source.resolve().name}-{args.src}-{args.tgt}")
        languages = (args.src, args.tgt)
        prepare_files(args.source, args.output or default, languages, settings, names)
    elif args.command == "wmt14":
        prepare_archived(WMT14_EN_DE, args.output, settings, args.source)
    else:
        pairs = options.counts_from(args, "pairs", generated.PAIRS)
        prepare_toy(args.output, settings, seed=args.seed, pairs=pairs)


main = command(get_parser, _run)

if __name__ == "__main__":
    sys.exit(main())
