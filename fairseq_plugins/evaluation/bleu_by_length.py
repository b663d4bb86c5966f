"""BLEU by source length, from fairseq-generate's output.

python -m fairseq_plugins.evaluation.bleu_by_length OUTPUT --data DIR [--subset test]
"""

import sys
from bisect import bisect_left
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.codes import join_pieces
from fairseq_plugins.evaluation.bleu import (
    TOKENISERS,
    read_languages,
    read_lines,
    read_pairs,
    score,
    score_command,
)
from fairseq_plugins.papers.extrapolation import BUCKETS

LEAST = 20  # sentences; BLEU of fewer is not reported


def bucket_of(length: int) -> str:
    """Name the bucket of a source with `length` words."""
    return BUCKETS[bisect_left((10, 20, 30, 40, 50), length)]


def read_source_lengths(output: Path, count: int) -> list[int]:
    """Count the tokenised words of each source, subwords joined; see `read_lines`."""
    return [len(join_pieces(line).split()) for line in read_lines(output, "S", count)]


def score_by_length(output: Path, data: Path, subset: str) -> dict[str, object]:
    """Compute BLEU of all sentences and of each bucket, None below `LEAST` sentences.

    Raises:
        ValueError: a source without spaces between words; and see `bleu.read_references`,
            `bleu.read_generated` and `bleu.score`.
    """
    if (source := read_languages(data)[0]) in TOKENISERS:
        raise DataError(f"--data must have a source with spaces between words, but it is {source}")
    hypotheses, references, language = read_pairs(output, data, subset)
    lengths = read_source_lengths(output, len(references))
    total, signature = score(hypotheses, references, language)
    buckets: dict[str, dict[str, float | int | None]] = {}
    for name in BUCKETS:
        rows = [i for i, length in enumerate(lengths) if bucket_of(length) == name]
        found = None
        if len(rows) >= LEAST:
            first, second = ([lines[i] for i in rows] for lines in (hypotheses, references))
            found, _ = score(first, second, language)
        buckets[name] = {"bleu": None if found is None else round(found, 4), "sentences": len(rows)}
    return {"bleu": round(total, 4), "signature": signature, "buckets": buckets}


main = score_command("python -m fairseq_plugins.evaluation.bleu_by_length", score_by_length)

if __name__ == "__main__":
    sys.exit(main())
