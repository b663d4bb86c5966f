"""Data folders for fairseq, from raw text to binarised splits: the Python behind scripts/prepare_*.

python -m fairseq_plugins.data.prepare toy|wikitext2|wikitext103 [options]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_plugins import data as toy
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.data.folders import (
    Folder,
    building,
    make_folder,
    report,
)
from fairseq_plugins.data.published import (
    SPLITS,
    WIKITEXT_2,
    WIKITEXT_103,
    PublishedCorpus,
    RawSource,
    copy_measured,
    download,
)

PREPARATION_VERSION = 2  # raise when the same request would give other files
FEWEST_MERGES = 16
PUBLISHED = {"wikitext2": WIKITEXT_2, "wikitext103": WIKITEXT_103}


def prepare_published(
    corpus: PublishedCorpus,
    output: Path,
    *,
    source: Path | None = None,
    url: str | None = None,
    workers: int = 1,
    mini_merges: int | None = None,
) -> None:
    """Make `output`, and `<output>-mini` in pieces of `mini_merges` merges, where not yet made.

    source: a folder or zip that holds the raw files; without one the zip is downloaded from
    `url` (default: the corpus's own) to `downloads` beside output, which is kept.
    Raises DataError for anything missing, damaged or different; nothing is then written.
    """
    check_counts(workers, mini_merges)
    base = {"preparation": PREPARATION_VERSION, "corpus": corpus.name}
    folders = [Folder(output, base | {"merges": None}, None, corpus.dictionary_size)]
    if mini_merges is not None:
        mini = output.with_name(output.name + "-mini")
        folders.append(Folder(mini, base | {"merges": mini_merges}, mini_merges))
    for folder in folders:
        folder.refuse_foreign()
    raw = None
    if source is not None:
        raw = RawSource(source, corpus)
        raw.require()
    with building(output) as work:
        wanted = [folder for folder in folders if not folder.is_done()]
        report_done(folders, wanted)
        if not wanted:
            return
        if raw is None:
            zip_path = output.parent / "downloads" / corpus.zip_name
            download(url or corpus.url, zip_path, corpus.zip_md5, report)
            raw = RawSource(zip_path, corpus)
        # A folder's own name, not its path: data.json ends up in results that are shared.
        origin = {"from": source.resolve().name} if source else {"url": url or corpus.url}
        (work / "raw").mkdir()
        found = raw.unpack(work / "raw", report)
        for folder in wanted:
            make_folder(folder, work, found, origin, workers)


def prepare_toy(output: Path, *, seed: int, sentences: Mapping[str, int], workers: int = 1) -> None:
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
        text = work / "text"
        toy.write_corpus(text, seed=seed, sentences=sentences)
        (work / "raw").mkdir()
        found = {}
        for split in SPLITS:
            with (text / f"{split}.txt").open("rb") as lines:
                found[split] = copy_measured(lines, work / "raw" / f"{split}.txt")
        make_folder(folder, work, found, {"generated": request["corpus"]}, workers, text)


def check_counts(workers: int, mini_merges: int | None) -> None:
    if workers < 1:
        raise DataError(f"--workers must be at least 1, but is {workers}")
    if mini_merges is not None and mini_merges < FEWEST_MERGES:
        raise DataError(f"--mini-merges must be at least {FEWEST_MERGES}, but is {mini_merges}")


def report_done(folders: Sequence[Folder], wanted: Sequence[Folder]) -> None:
    for folder in folders:
        if folder not in wanted:
            report(f"{folder.path} is already there; remove it to make it anew")


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prepare", description="Make data folders for fairseq.")
    commands = parser.add_subparsers(dest="corpus", required=True)
    for name, published in PUBLISHED.items():
        summary = f"{published.name}, downloaded or --from DIR"
        _add_published_options(
            commands.add_parser(
                name, prog=f"prepare_{name}.sh", help=summary, description=f"Make {summary}."
            ),
            published,
        )
    summary = "the embedded corpus, generated"
    command = commands.add_parser(
        "toy", prog="prepare_toy.sh", help=summary, description=f"Make {summary}."
    )
    _add_common_options(command, "toy")
    toy.add_arguments(command)
    return parser


def _add_common_options(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("data", name),
        metavar="DIR",
        help=f"folder to make (default: data/{name} in the repository)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="processes that binarise (default: 2)",
    )


def _add_published_options(parser: argparse.ArgumentParser, corpus: PublishedCorpus) -> None:
    _add_common_options(parser, corpus.name)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder with wiki.{train,valid,test}.tokens, plain, .xz or .gz, or the official zip",
    )
    where.add_argument(
        "--url", help=f"address of the official zip, checked by its md5 (default: {corpus.url})"
    )
    if corpus is WIKITEXT_2:
        parser.add_argument(
            "--mini-merges",
            type=int,
            default=1000,
            metavar="N",
            help="merges of the byte-pair encoding of the second folder, DIR-mini (default: 1000)",
        )


def _run(args: argparse.Namespace) -> None:
    if args.corpus == "toy":
        sentences = toy.sentences_from(args)
        prepare_toy(args.output, seed=args.seed, sentences=sentences, workers=args.workers)
    else:
        prepare_published(
            PUBLISHED[args.corpus],
            args.output,
            source=args.source,
            url=args.url,
            workers=args.workers,
            mini_merges=getattr(args, "mini_merges", None),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    args = get_parser().parse_args(arguments)
    return exit_status("prepare", lambda: _run(args))


if __name__ == "__main__":
    sys.exit(main())
