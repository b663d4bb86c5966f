"""Binarisation of monolingual text with fairseq-preprocess, as words or subwords."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS, read_dictionary
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.folders import SPLITS, report
from fairseq_plugins.data.measure import MeasuredText, copy_and_measure, unigram_perplexity
from fairseq_plugins.data.merges import count_words, write_codes


def preprocess(work: Path, arguments: Sequence[str], workers: int) -> list[str]:
    """Run fairseq-preprocess in `work`, and return the command as data.json records it.

    Raises:
        CalledProcessError: with the output of the command.
    """
    report(f"running fairseq-preprocess with {workers} workers")
    words = ["-m", "fairseq_cli.preprocess", *arguments]
    subprocess.run(
        [sys.executable, *words],
        cwd=work,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ["python", *words]


def without_carriage_returns(text: MeasuredText) -> MeasuredText:
    """Replace carriage returns, at which fairseq-preprocess would end lines, by spaces.

    Returns the text itself if it has none.
    """
    with text.path.open("rb") as lines:
        if not any(b"\r" in line for line in lines):
            return text
    with text.path.open("rb") as lines:
        spaced = (line.replace(b"\r", b" ") for line in lines)
        return copy_and_measure(spaced, text.path.with_name(f"{text.path.name}.spaced"))


def binarise(
    work: Path,
    raw: Mapping[str, MeasuredText],
    text: Mapping[str, MeasuredText],
    workers: int,
    *,
    max_words: int | None = None,
    dictionary: str | None = None,
    dictionary_size: int | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Binarise the text of every split inside `work`.

    Args:
        work: working folder.
        raw: text of every split before tokenization.
        text: tokenized text of every split, without carriage returns.
        workers: number of processes.
        max_words: limit of the dictionary; None for all words.
        dictionary: dict.txt in `work` to use; by default built from the training words.
        dictionary_size: expected number of symbols, if known.

    Returns:
        The binarised folder and its entries of data.json.

    Raises:
        DataError: the dictionary has another size.
    """
    built = work / "binarised"
    arguments = ["--only-source"]
    for split in SPLITS:
        arguments += [f"--{split}pref", text[split].path.relative_to(work).as_posix()]
    arguments += ["--destdir", built.name, "--workers", str(workers)]
    if max_words is not None:
        arguments += ["--nwordssrc", str(max_words)]
    if dictionary is not None:
        arguments += ["--srcdict", dictionary]
    command = preprocess(work, arguments, workers)
    words = set(read_dictionary(built / "dict.txt"))
    size = len(words) + len(SPECIAL_SYMBOLS)
    if dictionary_size not in (None, size):
        raise DataError(f"dictionary: expected {dictionary_size} symbols, found {size}")
    return built, {
        "raw": {
            s: {name: getattr(raw[s], name) for name in ("lines", "words", "bytes", "sha256")}
            for s in SPLITS
        },
        "splits": {s: describe(text[s], words) for s in SPLITS},
        "dictionary_size": size,
        "floors": _baselines(text, words),
        "command": command,
    }


def _baselines(
    text: Mapping[str, MeasuredText], words: set[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return trivial baselines by split, predictor and metric."""
    ppl = {s: unigram_perplexity(text["train"], text[s], words) for s in SPLITS if s != "train"}
    return {s: {"unigram": {"ppl": round(v, 4)}} for s, v in ppl.items() if v is not None}


def describe(text: MeasuredText, known: set[str]) -> dict[str, Any]:
    """Describe a split for data.json; unknown words are those binarised as <unk>."""
    unknown = sum(n for word, n in text.word_counts.items() if word not in known)
    return {
        "file": text.path.name,
        "sha256": text.sha256,
        "bytes": text.bytes,
        "lines": text.lines,
        "words": text.words,
        "unknown_words": unknown,
        "unknown_rate": round(unknown / max(text.words, 1), 6),
    }


def split_into_subwords(
    work: Path, texts: Mapping[str, MeasuredText], merges: int
) -> dict[str, MeasuredText]:
    """Learn a byte-pair encoding on the training split and apply it to every split.

    <unk> in published text stays one token. The text must have no carriage returns. The codes are
    written to work/codes.
    """
    from subword_nmt.apply_bpe import BPE

    report(f"learning and applying {merges} merges")
    with texts["train"].path.open(encoding="utf-8", newline="\n") as lines:
        write_codes(work / "codes", count_words(lines), merges)
    with (work / "codes").open(encoding="utf-8", newline="\n") as codes:
        bpe = BPE(codes, glossaries=["<unk>"])
    (work / "pieces").mkdir()
    subwords = {}
    for split, text in texts.items():
        with text.path.open(encoding="utf-8", newline="\n") as lines:
            encoded = (bpe.process_line(line).encode() for line in lines)
            subwords[split] = copy_and_measure(encoded, work / "pieces" / f"{split}.txt")
    return subwords
