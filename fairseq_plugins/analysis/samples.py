"""Samples of a split, as a model was trained to read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from fairseq_plugins.analysis.loaded_stacks import LoadedStack
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import DataError, OptionError


@dataclass(frozen=True)
class Sample:
    """A part of a text, or a pair of sentences."""

    tokens: Tensor  # (T,), the stack's input with its special tokens
    target: Tensor  # (S,), a pair's translation with </s>; else empty


def read_samples(
    loaded: LoadedStack, data: Path, split: str, *, length: int, count: int
) -> list[Sample]:
    """Read the first samples of a split, at most `count`.

    A translation model's are pairs of sentences of at most `length` tokens; of other models a text
    is cut into parts of `length` tokens, <s> included.

    Raises:
        ValueError: a damaged split, a length that the model does not accept, or no sample.
    """
    if not loaded.num_bos < length <= loaded.max_length:
        raise OptionError(
            f"`length` must be at least {loaded.num_bos + 1} and at most the model's "
            f"{loaded.max_length}, but is {length} instead."
        )
    if loaded.languages:
        pairs = (Sample(*pair) for pair in _read_pairs(loaded, data, split))
        short = (one for one in pairs if max(len(one.tokens), len(one.target)) <= length)
        found = list(islice(short, count))
    else:
        of_glue = data / "input0"
        folder = of_glue if of_glue.is_dir() else data
        text = _sentences(folder / split, loaded.dictionary)
        start = torch.full((loaded.num_bos,), loaded.dictionary.bos())
        parts = islice(_parts(text, length - loaded.num_bos), count)
        found = [Sample(torch.cat([start, part]), part[:0]) for part in parts]
    if not found:
        must = f"pairs of at most {length}" if loaded.languages else f"{length}"
        raise DataError(f"{data}: {split} must have {must} tokens, but has none")
    return found


def _read_pairs(loaded: LoadedStack, data: Path, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    source, target = loaded.languages
    names = [f"{split}.{source}-{target}", f"{split}.{target}-{source}"]
    name = next((one for one in names if (data / f"{one}.{source}.idx").is_file()), names[0])
    sides = zip(loaded.languages, (loaded.dictionary, loaded.model.decoder.dictionary), strict=True)
    texts = [_sentences(data / f"{name}.{language}", known) for language, known in sides]
    return zip(*texts, strict=True)


def _sentences(prefix: Path, dictionary: Dictionary) -> Iterator[Tensor]:
    check_split(prefix, len(dictionary))
    dataset: Any = data_utils.load_indexed_dataset(str(prefix), dictionary)
    return (dataset[i].long() for i in range(len(dataset)))


def _parts(sentences: Iterator[Tensor], length: int) -> Iterator[Tensor]:
    """Cut a text into parts (length,); the rest is left out."""
    rest = torch.empty(0, dtype=torch.long)
    for sentence in sentences:
        rest = torch.cat([rest, sentence])
        while len(rest) >= length:
            yield rest[:length]
            rest = rest[length:]
