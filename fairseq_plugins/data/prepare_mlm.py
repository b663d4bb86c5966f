"""Data for masked language models: the Python behind scripts/prepare_gpt2_bpe.sh and prepare_*_mlm.

python -m fairseq_plugins.data.prepare_mlm gpt2_bpe|text|wikitext103|toy [options]
"""

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins import data as toy
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import PACKED, find_packed, missing_packed, read_bytes
from fairseq_plugins.data.folders import (
    Folder,
    building,
    replace_folder,
    report,
)
from fairseq_plugins.data.gpt2_bpe import (
    FILES,
    PUBLISHED_DICTIONARY_SIZE,
    PUBLISHED_SHA256,
    PUBLISHED_URL,
    load_encoder,
)
from fairseq_plugins.data.mlm_folders import (
    PREPARATION_VERSION,
    make_mlm_folder,
    pieces_request,
)
from fairseq_plugins.data.plain_text import PlainText, find_files
from fairseq_plugins.data.published import (
    SPLITS,
    WIKITEXT_103,
    WIKITEXT_103_RAW,
    Measured,
    PublishedCorpus,
    RawSource,
    copy_measured,
    download,
)

PUBLISHED_PIECES = Path(__file__).resolve().parents[2] / "data" / "gpt2_bpe"
TOY_MERGES = 250  # nearly all that the embedded language gives: most words are one piece


def prepare_pieces(
    output: Path,
    source: Path | None,
    url: str = PUBLISHED_URL,
    sums: Mapping[str, str] = PUBLISHED_SHA256,
) -> None:
    """GPT-2's pieces in `output`, from a folder (plain or packed) or downloaded, checked by sum.

    Raises:
        DataError: a file is missing, damaged or not the published one; nothing is then written.
    """
    if source is not None:
        _require_pieces(source)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        wrong = [name for name in FILES if _sum(output / name) != sums[name]]
        if wrong:
            raise DataError(
                f"--output {output} exists and its {wrong[0]} is not the published one; "
                "move it away"
            )
        report(f"{output} is already there; remove it to make it anew")
        return
    with building(output) as work:
        built = work / "pieces"
        built.mkdir()
        for name in FILES:
            if source is None:
                kept = output.parent / "downloads" / "gpt2_bpe" / name
                content = download(f"{url}/{name}", kept, sums[name], report, "sha256").read_bytes()
            else:
                content = read_bytes(find_packed(source, name) or source / name)
            found = hashlib.sha256(content).hexdigest()
            if found != sums[name]:
                raise DataError(
                    f"{name} in {source} is not the published file: sha256: "
                    f"expected {sums[name]}, found {found}"
                )
            (built / name).write_bytes(content)
        load_encoder(built)
        replace_folder(built, output)
    report(f"{output}: {', '.join(FILES)}")


def _require_pieces(source: Path) -> None:
    if not source.is_dir():
        raise DataError(f"--from must be an existing folder, but is {source}")
    if absent := missing_packed(source, FILES):
        raise DataError(f"{source} does not hold {', '.join(absent)} ({PACKED})")


def _sum(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def prepare_text(
    output: Path,
    source: Path,
    *,
    chosen: Mapping[str, Sequence[str]],
    pieces: Path | None,
    merges: int | None,
    held_out: float = 1.0,
    evaluation_lines: int | None = None,
    workers: int = 1,
) -> None:
    """A folder of plain text as a data folder; options as in `plain_text` and `mlm_folders`.

    Raises:
        DataError: anything missing or damaged, with file and line; nothing is then written.
    """
    if not 0 < held_out < 50:
        raise DataError(f"--held-out must be between 0 and 50 per cent, but is {held_out}")
    if evaluation_lines is not None and evaluation_lines < 1:
        raise DataError(f"--evaluation-lines must be at least 1, but is {evaluation_lines}")
    files, others = find_files(source, chosen)
    for split in SPLITS:
        names = ", ".join(path.name for path in files[split])
        report(f"{split}: {names or f'documents of train ({held_out:g}%)'}")
    if others:
        report(f"not used: {', '.join(path.name for path in others)}")
    text = PlainText(files, held_out, evaluation_lines)
    about = {
        "corpus": source.resolve().name,
        "files": {s: [{"file": p.name, "sha256": _sum(p)} for p in files[s]] for s in SPLITS},
        "held_out": held_out,
        "evaluation_lines": evaluation_lines,
    }

    def gather(target: Path) -> dict[str, Measured]:
        return {s: copy_measured(lines, target / f"{s}.txt") for s, lines in text.lines().items()}

    folder = _folder(output, about, pieces, merges, workers)
    # A folder's own name, not its path: data.json ends up in results that are shared.
    make_mlm_folder(folder, pieces, gather, {"from": source.resolve().name}, workers)


def prepare_wikitext103(
    output: Path,
    pieces: Path,
    *,
    source: Path | None,
    url: str | None,
    workers: int = 1,
    corpora: Sequence[PublishedCorpus] = (WIKITEXT_103_RAW, WIKITEXT_103),
    dictionary_size: int | None = PUBLISHED_DICTIONARY_SIZE,
) -> None:
    """WikiText-103 in GPT-2's pieces: its raw text, or where a folder has only those, its words.

    corpora: the raw text, which is also what is downloaded, and the words.

    Raises:
        DataError: anything missing, damaged or different; nothing is then written.
    """
    corpus = corpora[0]
    if source is not None:
        corpus = _corpus_in(source, corpora)
        if corpus is not corpora[0]:
            report("there is no raw text: rare words stay <unk>, three pieces each")
    folder = _folder(output, {"corpus": corpus.name}, pieces, None, workers, dictionary_size)
    origin = {"from": source.resolve().name} if source else {"url": url or corpus.url}

    def gather(target: Path) -> dict[str, Measured]:
        location = source
        if location is None:
            location = output.parent / "downloads" / corpus.zip_name
            download(url or corpus.url, location, corpus.zip_md5, report)
        return RawSource(location, corpus).unpack(target, report)

    make_mlm_folder(folder, pieces, gather, origin, workers)


def _corpus_in(source: Path, corpora: Sequence[PublishedCorpus]) -> PublishedCorpus:
    """The first corpus of which a folder or zip has every file."""
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
    output: Path, *, seed: int, sentences: Mapping[str, int], merges: int, workers: int = 1
) -> None:
    """The embedded corpus in pieces that are learned from it."""
    about = {
        "corpus": f"embedded-v{toy.VERSION}",
        "seed": seed,
        "sentences": dict(sentences),
    }

    def gather(target: Path) -> dict[str, Measured]:
        text = target.with_name("text")
        toy.write_corpus(text, seed=seed, sentences=sentences)
        found = {}
        for split in SPLITS:
            with (text / f"{split}.txt").open("rb") as lines:
                found[split] = copy_measured(lines, target / f"{split}.txt")
        return found

    folder = _folder(output, about, None, merges, workers)
    make_mlm_folder(folder, None, gather, {"generated": about["corpus"]}, workers)


def _folder(
    output: Path,
    about: Mapping[str, Any],
    pieces: Path | None,
    merges: int | None,
    workers: int,
    dictionary_size: int | None = None,
) -> Folder:
    if workers < 1:
        raise DataError(f"--workers must be at least 1, but is {workers}")
    if pieces is not None:
        load_encoder(pieces)  # says what is missing there
    elif merges is None or merges < 1:
        raise DataError(f"--merges must be at least 1, but is {merges}")
    how = {"preparation": PREPARATION_VERSION, "task": "masked_lm"}
    request = {**how, **about, **pieces_request(pieces, merges)}
    return Folder(output, request, merges, dictionary_size)


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prepare_mlm", description="Make data folders for masked language models."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    bpe = _command(commands, "gpt2_bpe", "prepare_gpt2_bpe.sh", "GPT-2's pieces", "gpt2_bpe")
    where = bpe.add_mutually_exclusive_group()
    where.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help=f"folder with {', '.join(FILES)}, plain, .xz or .gz",
    )
    where.add_argument(
        "--url", default=PUBLISHED_URL, help=f"address of the folder (default: {PUBLISHED_URL})"
    )
    _add_text_options(
        _command(commands, "text", "prepare_text_mlm.sh", "any plain text", "text-mlm")
    )
    _add_wikitext_options(
        _command(
            commands,
            "wikitext103",
            "prepare_wikitext103_mlm.sh",
            "WikiText-103 in GPT-2's pieces",
            "wikitext-103-mlm",
        )
    )
    generated = _command(
        commands, "toy", "prepare_toy_mlm.sh", "the embedded corpus, generated", "toy-mlm"
    )
    _add_merges(generated, TOY_MERGES)
    toy.add_arguments(generated)
    return parser


def _command(
    commands: Any, name: str, script: str, summary: str, folder: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, prog=script, help=summary, description=f"Make data of {summary}."
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("data", folder),
        metavar="DIR",
        help=f"folder to make (default: data/{folder} in the repository)",
    )
    if name != "gpt2_bpe":
        parser.add_argument(
            "--workers",
            type=int,
            default=2,
            metavar="N",
            help="processes that encode and binarise (default: 2)",
        )
    return parser


def _add_pieces(parser: Any) -> None:
    parser.add_argument(
        "--bpe",
        type=Path,
        metavar="DIR",
        help="folder of pieces (default: data/gpt2_bpe in the repository, made by "
        "prepare_gpt2_bpe.sh)",
    )


def _add_merges(parser: Any, default: int | None = None) -> None:
    said = "" if default is None else f" (default: {default})"
    parser.add_argument(
        "--merges",
        type=int,
        default=default,
        metavar="N",
        help=f"learn N merges of bytes from the training text{said}",
    )


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with *.txt or *.txt.xz, whose names say the split (novels.train.txt); where "
        "none does, all is train",
    )
    pieces = parser.add_mutually_exclusive_group()
    _add_pieces(pieces)
    _add_merges(pieces)
    for split in SPLITS:
        parser.add_argument(
            f"--{split}",
            nargs="+",
            default=(),
            metavar="NAME",
            help=f"files of {split} in DIR (default: by their names)",
        )
    parser.add_argument(
        "--held-out",
        type=float,
        default=1.0,
        metavar="PERCENT",
        help="of train's last documents, for each of valid and test that has no file; documents "
        "end at empty lines (default: 1, at least one document)",
    )
    parser.add_argument(
        "--evaluation-lines",
        type=int,
        metavar="N",
        help="keep of every document of valid and test the first N lines (default: all)",
    )


def _add_wikitext_options(parser: argparse.ArgumentParser) -> None:
    _add_pieces(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="folder with wiki.{train,valid,test}.raw, or else .tokens, plain, .xz "
        "or .gz, or the zip",
    )
    where.add_argument(
        "--url", help=f"address of the zip of raw text (default: {WIKITEXT_103_RAW.url})"
    )


def _run(args: argparse.Namespace) -> None:
    if args.command == "gpt2_bpe":
        prepare_pieces(args.output, args.source, args.url)
    elif args.command == "toy":
        prepare_toy(
            args.output,
            seed=args.seed,
            sentences=toy.sentences_from(args),
            merges=args.merges,
            workers=args.workers,
        )
    elif args.command == "text":
        learned = args.merges is not None
        prepare_text(
            args.output,
            args.source,
            chosen={split: getattr(args, split) for split in SPLITS},
            pieces=None if learned else args.bpe or PUBLISHED_PIECES,
            merges=args.merges,
            held_out=args.held_out,
            evaluation_lines=args.evaluation_lines,
            workers=args.workers,
        )
    else:
        pieces = args.bpe or PUBLISHED_PIECES
        prepare_wikitext103(
            args.output, pieces, source=args.source, url=args.url, workers=args.workers
        )


def main(arguments: Sequence[str] | None = None) -> int:
    args = get_parser().parse_args(arguments)
    return exit_status("prepare", lambda: _run(args))


if __name__ == "__main__":
    sys.exit(main())
