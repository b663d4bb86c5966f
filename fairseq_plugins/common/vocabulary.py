"""Return whether a checkpoint was trained with the dictionary of the data that it meets.

A model writes a digest of its dictionaries into its options, which go into its checkpoints. One
without it, as fairseq's own models have, holds the number of its tokens but not their names: these
are compared where the data that it was trained on is still in its place, or its dictionary lies
beside it.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import MASK, SPECIAL_SYMBOLS, read_dictionary
from fairseq_plugins.common.errors import CheckpointError

logger = logging.getLogger(__name__)

DIGEST = "dictionary_digest"  # the model's option
LABEL_DIGEST = "label_digest"  # likewise, of a model that is fine-tuned for classes
# Weights with a row for each token.
ROBERTA_TABLE = "sentence_encoder.embed_tokens.weight"
DECODER_TABLE = "decoder.embed_tokens.weight"
SIDE_TABLES = ("encoder.embed_tokens.weight", DECODER_TABLE)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of data, and the weights of a model that has to have the same.

    path: of the dict.txt. symbols: its words with those that it does not list. table: the weight.
    """

    path: Path
    symbols: Sequence[str]
    table: str

    @classmethod
    def read(cls, path: Path, table: str) -> "Vocabulary":
        """Raises DataError for a damaged file."""
        masks = (MASK,) if table == ROBERTA_TABLE else ()
        return cls(path, (*SPECIAL_SYMBOLS, *read_dictionary(path), *masks), table)


def digest(*dictionaries: Sequence[str]) -> str:
    """16 hexadecimal digits for each dictionary, of its symbols in their order.

    <mask>, which some tasks add to the same dictionary, does not count.
    """
    texts = ("\n".join(s for s in symbols if s != MASK) for symbols in dictionaries)
    return "-".join(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)


def check_vocabulary(checkpoint: Path, state: Mapping[str, Any], *vocabularies: Vocabulary) -> None:
    """Refuse a checkpoint whose tokens are others than those of the data.

    state: what the checkpoint holds. vocabularies: those of the model; of one for translation
    those of source and target.

    Raises:
        CheckpointError: naming both sizes, both digests, or the first token that differs.
    """
    for vocabulary in vocabularies:
        _check_size(checkpoint, state["model"], vocabulary)
    known = find_option(state, "model", DIGEST)
    ours = digest(*(vocabulary.symbols for vocabulary in vocabularies))
    if known == ours:
        return
    found = [find_dictionary(checkpoint, state, v.path.name) for v in vocabularies]
    for vocabulary, trained_on in zip(vocabularies, found, strict=True):
        if trained_on is not None:
            _compare(trained_on, vocabulary)
    paths = " and ".join(str(vocabulary.path) for vocabulary in vocabularies)
    if known:
        raise CheckpointError(
            f"{paths} must have the words that {checkpoint} was trained on, in their order, with "
            f"the digest {known}, but the digest is {ours}"
        )
    if None in found:
        logger.warning(
            "%s does not say on which dictionary it was trained: only the number of its tokens "
            "was compared with %s",
            checkpoint,
            paths,
        )


def _check_size(checkpoint: Path, weights: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    table, count = vocabulary.table, len(vocabulary.symbols)
    tables = (w for name, w in weights.items() if name == table or name.endswith(f".{table}"))
    rows = next((len(weight) for weight in tables), count)
    if rows != count:
        raise CheckpointError(
            f"{checkpoint} has {rows} tokens, but {vocabulary.path} has {count} (with fairseq's "
            f"special symbols{' and <mask>' if MASK in vocabulary.symbols else ''}): prepare the "
            "data with the pieces that the checkpoint was trained on"
        )


def _compare(trained_on: Path, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError at the first token that differs; <mask> is left out."""
    theirs = [*SPECIAL_SYMBOLS, *read_dictionary(trained_on)]
    ours = [symbol for symbol in vocabulary.symbols if symbol != MASK]
    for i, (wanted, found) in enumerate(zip_longest(theirs, ours)):
        if wanted != found:
            raise CheckpointError(
                f"{vocabulary.path} must hold the tokens of {trained_on}, on which the "
                f"checkpoint was trained, but token {i} is {found!r} instead of {wanted!r}"
            )


def find_dictionary(checkpoint: Path, state: Mapping[str, Any], name: str) -> Path | None:
    """The dictionary beside a checkpoint, or in the data folder that it was trained on."""
    folders = [checkpoint.parent]
    if given := find_option(state, "task", "data"):
        data = Path(str(given).split(":")[0])
        folders += [data, data / "input0"]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def find_option(state: Mapping[str, Any], section: str, name: str) -> Any:
    """An option of a checkpoint's configuration, in a mapping or a Namespace; None if absent."""
    options = (state.get("cfg") or {}).get(section) or {}
    return options.get(name) if hasattr(options, "get") else getattr(options, name, None)
