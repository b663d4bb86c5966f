"""BLEU of the sentences whose source has about one length, from what fairseq-generate printed.

python -m fairseq_plugins.evaluation.bleu_by_length OUTPUT --data DIR [--subset test]
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.data.codes import join_pieces
from fairseq_plugins.evaluation.bleu import read_generated, read_references, run_command, score

EDGES = (10, 20, 30, 40, 50)  # the most words of a source in each bucket but the last
LEAST = 20  # sentences: BLEU of a few says nothing


def bucket_names(edges: Sequence[int] = EDGES) -> list[str]:
    """1-10, 11-20, ..., 51+."""
    starts = [1, *(edge + 1 for edge in edges)]
    closed = [f"{start}-{edge}" for start, edge in zip(starts, edges, strict=False)]
    return [*closed, f"{starts[-1]}+"]


def bucket_of(length: int, edges: Sequence[int] = EDGES) -> str:
    """The name of the bucket of a source of so many words."""
    place = sum(length > edge for edge in edges)
    return bucket_names(edges)[place]


def read_source_lengths(output: Path, count: int) -> list[int]:
    """Words of each source, as tokenised for the model, in the order of the data.

    output: a file with fairseq-generate's lines `S-<index> <text>`; pieces may still be split.

    Raises:
        ValueError: naming the file and the first sentence without a source.
    """
    found: dict[int, int] = {}
    for line in output.read_bytes().decode().split("\n"):
        if line.startswith("S-"):
            name, _, text = line.partition("\t")
            found[int(name.removeprefix("S-"))] = len(join_pieces(text).split())
    absent = next((i for i in range(count) if i not in found), None)
    if absent is not None:
        raise ValueError(f"{output}: no source of sentence {absent}")
    return [found[i] for i in range(count)]


def score_by_length(output: Path, data: Path, subset: str) -> dict[str, object]:
    """BLEU of all sentences and of each bucket, None where it has fewer than `LEAST`.

    Raises:
        ValueError: see `bleu.read_references`, `bleu.read_generated` and `bleu.score`.
    """
    language = json.loads((data / "data.json").read_text())["request"]["target"]
    references = read_references(data, subset, language)
    hypotheses = read_generated(output, language, len(references))
    lengths = read_source_lengths(output, len(references))
    total, signature = score(hypotheses, references)
    buckets: dict[str, dict[str, float | int | None]] = {}
    for name in bucket_names():
        own = [i for i, length in enumerate(lengths) if bucket_of(length) == name]
        found = None
        if len(own) >= LEAST:
            found, _ = score([hypotheses[i] for i in own], [references[i] for i in own])
        buckets[name] = {
            "bleu": None if found is None else round(found, 4),
            "sentences": len(own),
        }
    return {"bleu": round(total, 4), "signature": signature, "buckets": buckets}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    program = "python -m fairseq_plugins.evaluation.bleu_by_length"
    return run_command(program, score_by_length, arguments)


if __name__ == "__main__":
    sys.exit(main())
