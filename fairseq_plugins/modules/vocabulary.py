"""Whether the data to train on and a checkpoint have the same dictionary."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from fairseq.data import Dictionary

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.modules.continued import find_dictionary

_EMBEDDING = "sentence_encoder.embed_tokens.weight"


def check_vocabulary(checkpoint: Path, dictionary: Dictionary, data: Path) -> None:
    """Refuse a checkpoint whose tokens are others than those of the data.

    A checkpoint holds the number of its tokens, but not their names: those are compared where the
    data that it was trained on is still in its place, or a dict.txt lies beside it.

    Args:
        checkpoint: a file that fairseq wrote.
        dictionary: of the data.
        data: its folder, for the message.

    Raises:
        ValueError: naming both sizes, or the first token that differs; or a damaged file.
    """
    state = read_checkpoint(checkpoint)
    rows = next((len(w) for name, w in state["model"].items() if name.endswith(_EMBEDDING)), None)
    if rows is None:
        raise CheckpointError(f"{checkpoint} is no checkpoint of a RoBERTa")
    if rows != len(dictionary):
        raise CheckpointError(
            f"{checkpoint} has {rows} tokens, but {data / 'dict.txt'} has {len(dictionary)} "
            "(with fairseq's special symbols and <mask>): prepare the data with the pieces that "
            "the checkpoint was trained on (--bpe)"
        )
    trained_on = find_dictionary(checkpoint, state)
    if trained_on is not None:
        _compare(trained_on, Dictionary.load(str(trained_on)).symbols, dictionary, data)


def _compare(trained_on: Path, symbols: Sequence[str], dictionary: Dictionary, data: Path) -> None:
    """Raise ValueError at the first symbol that differs; <mask>, which tasks add, is left out."""
    ours = [symbol for symbol in dictionary.symbols if symbol != "<mask>"]
    theirs = [symbol for symbol in symbols if symbol != "<mask>"]
    for i, (wanted, found) in enumerate(zip_longest(theirs, ours)):
        if wanted != found:
            raise CheckpointError(
                f"{data / 'dict.txt'} must hold the tokens of {trained_on}, on which the "
                f"checkpoint was trained, but token {i} is {found!r} instead of {wanted!r}"
            )
