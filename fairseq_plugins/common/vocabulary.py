"""Check that a checkpoint was trained with the data's dictionary.

Checkpoints of this package hold a digest of their dictionaries. Other checkpoints, as of fairseq's
own models, hold the number of tokens alone; their tokens are compared if the training data, or its
dictionary beside the checkpoint, is available.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairseq_plugins.common.checkpoints import option_of
from fairseq_plugins.common.dictionaries import MASK, SPECIAL_SYMBOLS, read_dictionary
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.root import ROOT

logger = logging.getLogger(__name__)

DIGEST = "dictionary_digest"  # the model's option
LABEL_DIGEST = "label_digest"  # the same for a classifier's labels
LABELS = "label/dict.txt"  # in a data folder: a classifier's labels
# Weights with a row per token.
ROBERTA_TABLE = "sentence_encoder.embed_tokens.weight"
DECODER_TABLE = "decoder.embed_tokens.weight"
SIDE_TABLES = ("encoder.embed_tokens.weight", DECODER_TABLE)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of the data, and the model's weight that must have a row for each.

    path: the dict.txt. symbols: its words and the special symbols. table: name of the weight.
    """

    path: Path
    symbols: Sequence[str]
    table: str

    @classmethod
    def read(cls, path: Path, table: str) -> "Vocabulary":
        """Read a dict.txt; DataError if it is damaged."""
        masks = (MASK,) if table == ROBERTA_TABLE else ()
        return cls(path, (*SPECIAL_SYMBOLS, *read_dictionary(path), *masks), table)


def digest(*dictionaries: Sequence[str]) -> str:
    """Compute 16 hexadecimal digits for each dictionary from its symbols in order.

    <mask>, which some tasks add to a dictionary, is left out.
    """
    texts = ("\n".join(s for s in symbols if s != MASK) for symbols in dictionaries)
    return "-".join(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)


def check_vocabulary(checkpoint: Path, state: Mapping[str, Any], *vocabularies: Vocabulary) -> None:
    """Check that a checkpoint's tokens are those of the data.

    state: content of the checkpoint. vocabularies: the model's; for translation, source and target.

    Raises CheckpointError: naming both sizes, both digests, or the first token that differs.
    """
    for vocabulary in vocabularies:
        _check_size(checkpoint, state["model"], vocabulary)
    known = find_option(state, "model", DIGEST)
    ours = digest(*(vocabulary.symbols for vocabulary in vocabularies))
    if known == ours:
        return
    dictionaries = [find_dictionary(checkpoint, state, v.path.name) for v in vocabularies]
    for vocabulary, trained_on in zip(vocabularies, dictionaries, strict=True):
        if trained_on is not None:
            _compare(trained_on, vocabulary)
    paths = " and ".join(str(vocabulary.path) for vocabulary in vocabularies)
    if known:
        raise CheckpointError(
            f"{paths} must have {checkpoint}'s words in their order (digest {known}), but has "
            f"digest {ours}"
        )
    if None in dictionaries:
        logger.warning(
            "%s does not record its dictionary: only its number of tokens was compared with %s",
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
            "data with the checkpoint's tokenizer"
        )


def _compare(trained_on: Path, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError at the first token that differs; <mask> is left out."""
    theirs = [*SPECIAL_SYMBOLS, *read_dictionary(trained_on)]
    ours = [symbol for symbol in vocabulary.symbols if symbol != MASK]
    for i, (wanted, found) in enumerate(zip_longest(theirs, ours)):
        if wanted != found:
            raise CheckpointError(
                f"{vocabulary.path} must hold the tokens of {trained_on}, the checkpoint's "
                f"dictionary, but token {i} is {found!r} instead of {wanted!r}"
            )


def find_dictionary(checkpoint: Path, state: Mapping[str, Any], name: str) -> Path | None:
    """Find the dictionary beside a checkpoint, or in its training data."""
    folders = [checkpoint.parent]
    if given := find_option(state, "task", "data"):
        data = Path(str(given).split(":")[0])
        folders += [place / part for place in (data, ROOT / data) for part in (".", "input0")]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def find_option(state: Mapping[str, Any], section: str, name: str) -> Any:
    """Return an option of a checkpoint's configuration; None if missing."""
    return option_of((state.get("cfg") or {}).get(section), name)
