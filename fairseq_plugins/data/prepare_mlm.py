"""Preparation of data folders for masked language models.

python -m fairseq_plugins.data.prepare_mlm gpt2_bpe|text|wikitext103|toy [options]
"""

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data import generated, options
from fairseq_plugins.data.folders import SPLITS, report
from fairseq_plugins.data.gpt2_bpe import FILES, PUBLISHED_DICTIONARY_SIZE, PUBLISHED_URL
from fairseq_plugins.data.measure import MeasuredText, copy_and_measure, sha256
from fairseq_plugins.data.mlm_folders import make_mlm_folder
from fairseq_plugins.data.plain_text import find_files, read_splits
from fairseq_plugins.data.prepare_gpt2_bpe import prepare_tokenizer
from fairseq_plugins.data.published import (
    WIKITEXT_103,
    WIKITEXT_103_RAW,
    PublishedCorpus,
    RawSource,
)

TOY_MERGES = 250  # nearly all possible in the generated language: most words are one subword


def prepare_text(
    output: Path,
    source: Path,
    *,
    chosen: Mapping[str, Sequence[str]] = MappingProxyType({}),
    tokenizer: Path | None = None,
    merges: int | None = None,
    held_out: float = 1.0,
    evaluation_lines: int | None = None,
    workers: int = 1,
    force: bool = False,
) -> None:
    """Make a data folder from a folder of plain text; see `plain_text` and `mlm_folders`.

    Raises DataError: anything missing or damaged, with file and line; nothing is then written.
    """
    if not 0 < held_out < 50:
        raise OptionError(f"--held-out must be between 0 and 50 per cent, but is {held_out}")
    options.check_at_least(1, evaluation_lines=evaluation_lines)
    files, unused = find_files(source, chosen)
    for split in SPLITS:
        names = ", ".join(path.name for path in files[split])
        report(f"{split}: {names or f'documents of train ({held_out:g}%)'}")
    if unused:
        report(f"not used: {', '.join(unused)}")
    about = {
        "corpus": source.resolve().name,
        "files": {s: [{"file": p.name, "sha256": sha256(p)} for p in files[s]] for s in SPLITS},
        "held_out": held_out,
        "evaluation_lines": evaluation_lines,
    }

    def gather(target: Path) -> dict[str, MeasuredText]:
        texts = read_splits(files, held_out, evaluation_lines)
        return {s: copy_and_measure(lines, target / f"{s}.txt") for s, lines in texts.items()}

    # Only the folder's name: data.json is copied into results, which are shared.
    origin = {"from": source.resolve().name}
    make_mlm_folder(
        output, about, gather, origin, workers, tokenizer=tokenizer, merges=merges, force=force
    )


def prepare_wikitext103(
    output: Path,
    tokenizer: Path,
    *,
    source: Path | None,
    url: str | None,
    workers: int = 1,
    corpora: Sequence[PublishedCorpus] = (WIKITEXT_103_RAW, WIKITEXT_103),
    dictionary_size: int | None = PUBLISHED_DICTIONARY_SIZE,
    force: bool = False,
) -> None:
    """Make a data folder of WikiText-103 in the subwords of a tokenizer folder.

    Args:
        output: folder to make.
        tokenizer: tokenizer folder.
        source: folder or zip with the text; None to download it.
        url: address of the download; the corpus's own by default.
        workers: number of processes.
        corpora: the raw text, which is also the download, and the word-level text that replaces it
            if ``source`` has no raw text.
        dictionary_size: expected size of the dictionary.
        force: whether to replace a folder of another request.

    Raises:
        DataError: anything missing, damaged or different; nothing is then written.
    """
    corpus = corpora[0]
    if source is not None:
        corpus = _corpus_in(source, corpora)
        if corpus is not corpora[0]:
            report("no raw text found: rare words are <unk>, spelled in three subwords each")

    def gather(target: Path) -> dict[str, MeasuredText]:
        location = source or corpus.download(output.parent, url)
        return RawSource(location, corpus).unpack(target)

    make_mlm_folder(
        output,
        {"corpus": corpus.name},
        gather,
        corpus.origin(source, url),
        workers,
        tokenizer=tokenizer,
        dictionary_size=dictionary_size,
        force=force,
    )


def _corpus_in(source: Path, corpora: Sequence[PublishedCorpus]) -> PublishedCorpus:
    """Return the first corpus whose files are all in a folder or zip."""
    wrong = []
    for corpus in corpora:
        try:
            RawSource(source, corpus).require()
        except DataError as error:
            wrong.append(str(error))
        else:
            return corpus
    raise DataError("; nor is there other text: ".join(wrong))


def prepare_toy(
    output: Path,
    *,
    seed: int,
    sentences: Mapping[str, int],
    merges: int,
    workers: int = 1,
    force: bool = False,
) -> None:
    """Make a data folder of the generated corpus with subwords learned from it."""
    gather = functools.partial(generated.write_measured, seed=seed, sentences=sentences)
    about = generated.describe(seed, sentences)
    origin = {"generated": about["corpus"]}
    make_mlm_folder(output, about, gather, origin, workers, merges=merges, force=force)


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe prepare", description="Make data folders for masked language models."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_gpt2_bpe(commands)
    _add_text(_command(commands, "text", "text_mlm", "any plain text", "text-mlm"))
    summary = "WikiText-103 in GPT-2's subwords"
    _add_wikitext(_command(commands, "wikitext103", "wikitext103_mlm", summary, "wikitext-103-mlm"))
    summary = "the generated corpus"
    toy = _command(commands, "toy", "toy_mlm", summary, "toy-mlm")
    options.add_number(toy, "--merges", TOY_MERGES, "merges of bytes to learn")
    generated.add_arguments(toy)
    return parser


def _command(
    commands: Any, name: str, script: str, summary: str, folder: str
) -> argparse.ArgumentParser:
    parser = options.add_command(commands, name, f"prepare_{script}", summary, "Make data of {}.")
    options.add_output(parser, folder)
    options.add_workers(parser, "processes that encode and binarise")
    options.add_force(parser)
    return parser


def _add_gpt2_bpe(commands: Any) -> None:
    about = "Download {}, or copy it from a folder."
    parser = options.add_command(
        commands, "gpt2_bpe", "prepare_gpt2_bpe", "GPT-2's tokenizer", about
    )
    options.add_output(parser, "gpt2_bpe")
    where = parser.add_mutually_exclusive_group()
    options.add_source(where, f"folder with {', '.join(FILES)}, plain, .xz or .gz")
    text = f"address of the folder (default: {PUBLISHED_URL})"
    where.add_argument("--url", default=PUBLISHED_URL, help=text)


def _add_text(parser: argparse.ArgumentParser) -> None:
    options.add_source(
        parser,
        "folder with *.txt, *.txt.xz or *.txt.gz, whose names contain the split "
        "(novels.train.txt); if none does, all files are train's",
        required=True,
    )
    subwords = parser.add_mutually_exclusive_group()
    options.add_tokenizer(subwords, "the tokenizer", "gpt2_bpe")
    text = "learn N merges of bytes from the training text instead"
    subwords.add_argument("--merges", type=int, metavar="N", help=text)
    for split in SPLITS:
        text = f"files of {split} in DIR (default: by their names)"
        parser.add_argument(f"--{split}", nargs="+", default=(), metavar="NAME", help=text)
    text = "share of train's last documents for each of valid and test without files; documents "
    text += "end at empty lines (default: 1, at least one document)"
    parser.add_argument("--held-out", type=float, default=1.0, metavar="PERCENT", help=text)
    text = "keep only the first N lines of every document of valid and test (default: all)"
    parser.add_argument("--evaluation-lines", type=int, metavar="N", help=text)


def _add_wikitext(parser: argparse.ArgumentParser) -> None:
    options.add_tokenizer(parser, "the tokenizer", "gpt2_bpe")
    where = parser.add_mutually_exclusive_group()
    text = "folder with wiki.{train,valid,test}.raw, or else .tokens, plain, .xz or .gz, or the zip"
    options.add_source(where, text)
    text = f"address of the zip of raw text (default: {WIKITEXT_103_RAW.url})"
    where.add_argument("--url", help=text)


def _run(args: argparse.Namespace) -> None:
    if args.command == "gpt2_bpe":
        prepare_tokenizer(args.output, args.source, args.url)
    elif args.command == "toy":
        options.call(prepare_toy, args, sentences=generated.sentences_from(args))
    elif args.command == "text":
        chosen = {split: getattr(args, split) for split in SPLITS}
        tokenizer = args.bpe if args.merges is None else None
        options.call(prepare_text, args, chosen=chosen, tokenizer=tokenizer)
    else:
        options.call(prepare_wikitext103, args, tokenizer=args.bpe)


main = command(get_parser, _run)


if __name__ == "__main__":
    sys.exit(main())
