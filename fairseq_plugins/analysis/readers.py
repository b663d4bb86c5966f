"""The stack of a trained model that reads sentences: all of what is looked at here begins there.

A masked model and a language model have one stack each; of a translation model it is the encoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary

import fairseq_plugins.registration  # noqa: F401  (what checkpoints name)
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    ROBERTA_TABLE,
    SIDE_TABLES,
    Vocabulary,
    check_vocabulary,
)
from fairseq_plugins.evaluation.translator import languages_of
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION
from fairseq_plugins.modules.loading import SENTENCE_TASKS, build_trained, read_trained

TASKS = {
    ROBERTA: ("masked_lm", "pe_masked_lm", *SENTENCE_TASKS, "squad"),
    LM: ("language_modeling",),
    TRANSLATION: ("translation",),
}
KINDS = {ROBERTA: "encoder only", LM: "decoder only", TRANSLATION: "encoder & decoder"}


@dataclass(frozen=True)
class Reader:
    """A model by the stack that reads.

    Attributes:
        family: the model's registered name.
        model: in evaluation mode.
        stack: its layers, with the embeddings of tokens and positions.
        dictionary: of what it reads.
        begins: tokens before the words of a sentence: <s>, or none.
        ends: tokens behind them: </s>, or none.
    """

    family: str
    model: Any
    stack: Any
    dictionary: Dictionary
    begins: int
    ends: int

    @property
    def is_causal(self) -> bool:
        return self.family == LM

    @property
    def reach(self) -> int:
        """The longest sequence that it reads."""
        return int(self.stack.max_positions())

    def read(self, tokens: torch.Tensor) -> None:
        """Pass tokens (B, T) through the stack."""
        if self.family == ROBERTA:
            self.model.encoder(tokens, features_only=True)
        elif self.family == LM:
            self.model.decoder.extract_features(tokens, None)
        else:
            self.model.encoder(tokens, src_lengths=tokens.ne(self.dictionary.pad()).sum(1))


def reader_of(family: str, model: Any, dictionary: Dictionary, *, begins: bool = False) -> Reader:
    """A model that is built already.

    Args:
        family: its registered name.
        model: the model.
        dictionary: of what it reads.
        begins: whether a language model was trained with <s> before each sample. A masked model
            always begins so and ends with </s>, the source of a translation ends with it.
    """
    if family == ROBERTA:
        return Reader(family, model, model.encoder.sentence_encoder, dictionary, 1, 1)
    if family == LM:
        return Reader(family, model, model.decoder, dictionary, int(begins), 0)
    return Reader(family, model, model.encoder, dictionary, 0, 1)


def load_reader(checkpoint: Path, data: Path) -> Reader:
    """A checkpoint of any of our models.

    Args:
        checkpoint: its file.
        data: the folder with the dictionaries that it was trained with.

    Raises:
        ValueError: it is missing, damaged, of another model, task or dictionary.
    """
    tasks = [task for names in TASKS.values() for task in names]
    state = read_trained(checkpoint, models=list(TASKS), tasks=tasks)
    family = state["cfg"]["model"]["_name"]
    own, vocabularies = _VOCABULARIES[family](checkpoint, state, data)
    check_vocabulary(checkpoint, state, *vocabularies)
    model, config, _ = build_trained(checkpoint, state, data)
    dictionary = Dictionary.load(str(own))
    if family == ROBERTA:
        dictionary.add_symbol(MASK)
    begins = bool(getattr(config.task, "add_bos_token", False))
    return reader_of(family, model, dictionary, begins=begins)


Found = tuple[Path, list[Vocabulary]]  # the dictionary of what is read, and all of the model's


def _one(table: str) -> Callable[[Path, Mapping[str, Any], Path], Found]:
    def find(checkpoint: Path, state: Mapping[str, Any], data: Path) -> Found:
        of_glue = data / "input0"  # a task of sentences has the pieces' dictionary in there
        path = _dictionary(of_glue if of_glue.is_dir() else data, "dict.txt")
        return path, [Vocabulary.read(path, table)]

    return find


def _of_sides(checkpoint: Path, state: Mapping[str, Any], data: Path) -> Found:
    languages = languages_of(state, checkpoint, data)
    paths = [_dictionary(data, f"dict.{language}.txt") for language in languages]
    sides = zip(paths, SIDE_TABLES, strict=True)
    return paths[0], [Vocabulary.read(path, table) for path, table in sides]


def _dictionary(data: Path, name: str) -> Path:
    if not (data / name).is_file():
        raise DataError(f"--data {data} does not hold {name}")
    return data / name


_VOCABULARIES = {ROBERTA: _one(ROBERTA_TABLE), LM: _one(DECODER_TABLE), TRANSLATION: _of_sides}
