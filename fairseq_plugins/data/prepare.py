"""Preparation of language-model data folders, from raw text to binarised splits.

python -m fairseq_plugins.data.prepare toy|wikitext2|wikitext103 [options]
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data import generated, options
from fairseq_plugins.data.binarise import binarise, split_into_subwords, without_carriage_returns
from fairseq_plugins.data.folders import SPLITS, Folder, build_folder
from fairseq_plugins.data.measure import MeasuredText
from fairseq_plugins.data.published import WIKITEXT_2, WIKITEXT_103, PublishedCorpus, RawSource

PREPARATION_VERSION = 2  # increase when the same request gives other files
# Dictionary entries for single characters beside the merges; rarer characters become <unk>.
ROOM_FOR_CHARACTERS = 200
PUBLISHED = {"wikitext2": WIKITEXT_2, "wikitext103": WIKITEXT_103}


def prepare_published(
    corpus: PublishedCorpus,
    output: Path,
    *,
    source: Path | None = None,
    url: str | None = None,
    workers: int = 1,
    mini_merges: int | None = None,
    force: bool = False,
) -> None:
    """Make a data folder of words, and with `mini_merges` also one of subwords.

    Args:
        corpus: the corpus.
        output: folder to make; the second is `<output>-mini`.
        source: folder or zip with the raw files; None to download the zip to `downloads` next to
            ``output``, where it is kept.
        url: address of the zip; the corpus's own by default.
        workers: number of processes.
        mini_merges: number of BPE merges of the second folder; None to make only the first.
        force: whether to replace folders of another request.

    Raises:
        DataError: anything missing, damaged or different; nothing is then written.
    """
    options.check_at_least(1, workers=workers)
    options.check_at_least(options.FEWEST_MERGES, mini_merges=mini_merges)
    base = {"preparation": PREPARATION_VERSION, "corpus": corpus.name}
    folders = [Folder(output, {**base, "merges": None}, force=force)]
    if mini_merges is not None:
        mini = output.with_name(output.name + "-mini")
        folders.append(Folder(mini, {**base, "merges": mini_merges}, force=force))
    for folder in folders:
        folder.refuse_other()
    if source is not None:
        RawSource(source, corpus).require()
    for folder in folders:
        with build_folder(folder) as work:
            if work:
                (work / "raw").mkdir()
                location = source or corpus.download(output.parent, url)
                raw = RawSource(location, corpus).unpack(work / "raw")
                merges = folder.request["merges"]
                size = corpus.dictionary_size if merges is None else None
                _finish(folder, work, raw, corpus.origin(source, url), workers, merges, size)


def prepare_toy(
    output: Path, *, seed: int, sentences: Mapping[str, int], workers: int = 1, force: bool = False
) -> None:
    """Make the folder of the generated corpus: binarised splits, data.json, and text in raw/."""
    options.check_at_least(1, workers=workers)
    corpus = generated.describe(seed, sentences)
    folder = Folder(output, {"preparation": PREPARATION_VERSION, **corpus}, force=force)
    with build_folder(folder) as work:
        if work:
            raw = generated.write_measured(work / "raw", seed=seed, sentences=sentences)
            _finish(folder, work, raw, {"generated": corpus["corpus"]}, workers, keep="raw")


def _finish(
    folder: Folder,
    work: Path,
    raw: Mapping[str, MeasuredText],
    origin: Mapping[str, Any],
    workers: int,
    merges: int | None = None,
    dictionary_size: int | None = None,
    keep: str | None = None,
) -> None:
    """Binarise text as words, or as subwords with ``merges``, and move the folder to its target.

    ``keep`` names a subfolder of ``work`` to include.
    """
    text: Mapping[str, MeasuredText] = {s: without_carriage_returns(t) for s, t in raw.items()}
    max_words = None
    if merges is not None:
        text, max_words = split_into_subwords(work, text, merges), merges + ROOM_FOR_CHARACTERS
        keep = "codes"
    built, about = binarise(
        work, raw, text, workers, max_words=max_words, dictionary_size=dictionary_size
    )
    if keep is not None:
        (work / keep).rename(built / keep)
    rates = ", ".join(f"{s} {about['splits'][s]['unknown_rate']:.2%}" for s in SPLITS)
    summary = f"dictionary of {about['dictionary_size']} symbols; unknown words: {rates}"
    folder.finish(built, origin, about, summary)


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(prog="fairseq-pe prepare", description="Make data folders for fairseq.")
    commands = parser.add_subparsers(dest="corpus", required=True)
    for name, corpus in PUBLISHED.items():
        summary = f"{corpus.name}, downloaded or --from DIR"
        command = options.add_command(commands, name, f"prepare_{name}", summary)
        _add_common_options(command, corpus.name)
        where = command.add_mutually_exclusive_group()
        options.add_source(
            where,
            "folder with wiki.{train,valid,test}.tokens, plain, .xz or .gz, or the official zip",
        )
        address = f"address of the official zip, checked by its md5 (default: {corpus.url})"
        where.add_argument("--url", help=address)
        if corpus is WIKITEXT_2:
            text = "merges of the byte-pair encoding of the second folder, DIR-mini"
            options.add_number(command, "--mini-merges", 1000, text)
    command = options.add_command(commands, "toy", "prepare_toy", "the generated corpus")
    _add_common_options(command, "toy")
    generated.add_arguments(command)
    return parser


def _add_common_options(parser: argparse.ArgumentParser, name: str) -> None:
    options.add_output(parser, name)
    options.add_workers(parser, "processes that binarise")
    options.add_force(parser)


def _run(args: argparse.Namespace) -> None:
    if args.corpus == "toy":
        options.call(prepare_toy, args, sentences=generated.sentences_from(args))
    else:
        options.call(prepare_published, args, corpus=PUBLISHED[args.corpus])


main = command(get_parser, _run)


if __name__ == "__main__":
    sys.exit(main())
