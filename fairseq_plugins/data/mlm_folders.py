"""Data folders for masked language models, with subwords as in fairseq's RoBERTa recipe.

Besides the usual files they hold the tokenizer in bpe/, for preparing fine-tuning data.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import DICTIONARY_FILE
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.progress import track
from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.data.binarise import binarise
from fairseq_plugins.data.folders import SPLITS, Folder, build_folder, report
from fairseq_plugins.data.gpt2_bpe import FILES, learn_gpt2_bpe
from fairseq_plugins.data.measure import MeasuredText, copy_and_measure, seen_lines
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.data.tokenizers import UNKNOWN, load_tokenizer, report_unknown
from fairseq_plugins.data.workers import LineFunction, parallel_map

PREPARATION_VERSION = 1  # increase when the same request gives other files
BPE_FOLDER = "bpe"

Gather = Callable[[Path], Mapping[str, MeasuredText]]


def make_mlm_folder(
    output: Path,
    about: Mapping[str, Any],
    gather: Gather,
    origin: Mapping[str, Any],
    workers: int,
    *,
    tokenizer: Path | None = None,
    merges: int | None = None,
    dictionary_size: int | None = None,
    force: bool = False,
) -> None:
    """Build a data folder unless the same request has built it before.

    Args:
        output: folder to build.
        about: identity of the text, for data.json.
        gather: function that writes the text of every split into a folder and measures it.
        origin: source of the text, for data.json.
        workers: number of processes.
        tokenizer: tokenizer folder; None to learn one from the training text.
        merges: number of merges to learn.
        dictionary_size: expected size of the dictionary, if known.
        force: whether to replace a folder of another request.

    Raises:
        DataError: anything missing or damaged, or another request's folder; nothing is then
            written.
    """
    loaded = load_tokenizer(tokenizer) if tokenizer else None
    check_at_least(1, workers=workers)
    if loaded is None:
        check_at_least(1, merges=0 if merges is None else merges)
    request = {
        "preparation": PREPARATION_VERSION,
        "task": "masked_lm",
        **about,
        "merges": merges,
        **({"pieces": loaded.sums()} if loaded else {}),
    }
    names = loaded.files if loaded else FILES
    files = (*DATA_FILES, *(f"{BPE_FOLDER}/{name}" for name in names))
    folder = Folder(output, request, files, force=force)
    with build_folder(folder) as work:
        if work:
            (work / "raw").mkdir()
            raw = gather(work / "raw")
            for split in SPLITS:
                if not raw[split].words:
                    raise DataError(f"the {split} split has no text")
            seen = seen_lines({split: raw[split].path for split in SPLITS})
            (work / BPE_FOLDER).mkdir()
            if loaded:
                loaded.copy(work / BPE_FOLDER)
            elif merges is not None:
                _learn(merges, raw["train"].path, work / BPE_FOLDER)
            encoded = _encode(work, raw, workers)
            built, entries = binarise(
                work,
                raw,
                encoded,
                workers,
                dictionary=f"{BPE_FOLDER}/{DICTIONARY_FILE}",
                dictionary_size=dictionary_size,
            )
            (work / BPE_FOLDER).rename(built / BPE_FOLDER)
            counts = ", ".join(f"{s} {encoded[s].words:,}" for s in SPLITS)
            summary = f"dictionary of {entries['dictionary_size']} symbols; subwords: {counts}"
            folder.finish(built, origin, {**entries, "seen_lines": seen}, summary)


def _learn(merges: int, text: Path, target: Path) -> None:
    report(f"learning {merges} merges of bytes")
    with text.open(encoding="utf-8", newline="\n") as lines:
        learned = learn_gpt2_bpe(lines, merges, target)
    if learned < merges:
        report(f"only {learned} merges: no further pair occurs twice")


def line_encoder(folder: Path) -> LineFunction:
    """Return a function from a line of text to the line of its tokens."""
    tokenizer = load_tokenizer(folder)
    return lambda line: " ".join(tokenizer.tokenize(line))


def _encode(work: Path, raw: Mapping[str, MeasuredText], workers: int) -> dict[str, MeasuredText]:
    """Tokenize all splits, keeping empty lines as fairseq's `--keep-empty`."""
    report(f"encoding {sum(raw[s].words for s in SPLITS):,} words with {workers} workers")
    (work / "pieces").mkdir()
    encoded = {}
    with parallel_map(functools.partial(line_encoder, work / BPE_FOLDER), workers) as encode:
        for split in SPLITS:
            with raw[split].path.open(encoding="utf-8", newline="\n") as lines:
                shown = track(
                    encode(lines), f"encoding {split}", unit="lines", total=raw[split].lines
                )
                written = (line.encode() + b"\n" for line in shown)
                encoded[split] = copy_and_measure(written, work / "pieces" / f"{split}.bpe")
            report_unknown(split, encoded[split].word_counts[UNKNOWN], encoded[split].words)
    return encoded
