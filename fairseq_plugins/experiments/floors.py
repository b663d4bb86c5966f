"""What language models are compared with that needs none: the frequencies of words."""

from collections.abc import Iterable
from math import log2

from fairseq_plugins.records.data import DataDescription


def unigram_floors(data: DataDescription, splits: Iterable[str]) -> dict[str, dict[str, float]]:
    """Perplexity and loss in bits of each split, where the data says them."""
    found: dict[str, dict[str, float]] = {}
    for split in splits:
        value = data.floors.number(split, "unigram", "ppl")
        if value:
            found[f"{split}_ppl"] = {"unigram": value}
            found[f"{split}_loss"] = {"unigram": log2(value)}
    return found
