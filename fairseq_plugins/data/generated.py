"""The generated corpus as text files, one sentence per line."""

import argparse
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.measure import MeasuredText, measure
from fairseq_plugins.data.options import add_counts, add_seed, check_counts, counts_from
from fairseq_plugins.data.sentences import generate

VERSION = 1  # increase when the same seed gives other text
SENTENCES = {"train": 24_000, "valid": 1_300, "test": 1_300}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that generate the corpus."""
    add_seed(parser, "text")
    add_counts(parser, "sentences", SENTENCES, "lines of {split}.txt")


def sentences_from(args: argparse.Namespace) -> dict[str, int]:
    """Return the number of sentences by split, from options of `add_arguments`."""
    return counts_from(args, "sentences", SENTENCES)


def describe(seed: int, sentences: Mapping[str, int]) -> dict[str, Any]:
    """Describe the corpus in a folder's request."""
    return {"corpus": f"embedded-v{VERSION}", "seed": seed, "sentences": dict(sentences)}


def write_corpus(output: Path, *, seed: int, sentences: Mapping[str, int]) -> dict[str, Any]:
    """Write <split>.txt for every split and corpus.json, and return the latter's content.

    Files are written atomically, corpus.json last. Each split has its own random stream, so
    changing the size of one does not change the others.

    Raises:
        OptionError: a split with no sentences.
    """
    check_counts("sentences", sentences)
    output.mkdir(parents=True, exist_ok=True)
    (output / "corpus.json").unlink(missing_ok=True)
    about: dict[str, Any] = {"version": VERSION, "seed": seed, "splits": {}}
    for split, count in sentences.items():
        written = generate(f"{seed}/{split}", count)
        text = "".join(" ".join(sentence.tokens) + "\n" for sentence in written)
        write_text(output / f"{split}.txt", text)
        about["splits"][split] = {
            "file": f"{split}.txt",
            "sentences": count,
            "words": sum(len(sentence.tokens) for sentence in written),
            "kinds": dict(sorted(Counter(sentence.kind for sentence in written).items())),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
    write_json(output / "corpus.json", about)
    return about


def write_measured(
    output: Path, *, seed: int, sentences: Mapping[str, int]
) -> dict[str, MeasuredText]:
    """Write the corpus and return the text statistics by split."""
    write_corpus(output, seed=seed, sentences=sentences)
    return {split: measure(output / f"{split}.txt") for split in SPLITS}
