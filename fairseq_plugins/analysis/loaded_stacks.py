"""Trained models and the stack of layers that is analysed; for a translation model, the encoder.

Shapes: B batch, T positions, C features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from torch import Tensor

import fairseq_plugins.registration  # noqa: F401  (classes that checkpoints name)
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    ROBERTA_TABLE,
    SIDE_TABLES,
    Vocabulary,
    check_vocabulary,
)
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.evaluation.translator import languages_of
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION
from fairseq_plugins.modules.loading import (
    SENTENCE_TASKS,
    build_trained,
    choose_device,
    read_trained,
)

TASKS = {
    ROBERTA: ("masked_lm", "pe_masked_lm", *SENTENCE_TASKS, "squad"),
    LM: ("language_modeling",),
    TRANSLATION: ("translation",),
}
KINDS = {ROBERTA: "encoder only", LM: "decoder only", TRANSLATION: "encoder & decoder"}
# Attentions of a model: of its layers, or of a translation model's decoder to itself or the source.
SITES = {ROBERTA: ("encoder",), LM: ("decoder",), TRANSLATION: ("encoder", "decoder", "cross")}


@dataclass(frozen=True)
class LoadedStack:
    """A trained model and its analysed stack."""

    family: str  # the model's registered name
    model: Any  # in evaluation mode
    stack: Any  # the encoder or decoder, with the embeddings of tokens and positions
    dictionary: Dictionary  # of its input
    num_bos: int  # number of <s> before a sentence, 0 or 1
    num_eos: int  # number of </s> after a sentence, 0 or 1
    languages: tuple[str, ...] = ()  # source and target of a translation model

    @property
    def is_causal(self) -> bool:
        return self.family == LM

    @property
    def max_length(self) -> int:
        """The longest sequence that the model accepts."""
        return int(self.stack.max_positions())

    def run(self, tokens: Tensor) -> list[Tensor]:
        """Run tokens (B, T) through the stack; return the layers' input and outputs (T, B, C)."""
        if self.family == ROBERTA:
            _, extra = self.model.encoder(tokens, features_only=True, return_all_hiddens=True)
            return list(extra["inner_states"])
        if self.family == LM:
            return list(self.model.decoder.extract_features(tokens, None)[1]["inner_states"])
        lengths = tokens.ne(self.dictionary.pad()).sum(1)
        found = self.model.encoder(tokens, src_lengths=lengths, return_all_hiddens=True)
        return list(found["encoder_states"])

    def encoding(self, layer: int) -> PositionEncoding | None:
        """Return the encoding in the attention of a layer, from 1; for 0 that of the input."""
        if layer == 0:
            return self.stack.position_embedding
        return self.stack.layers[layer - 1].self_attn.attention.encoding

    def softmax_attentions(self, site: str = "") -> list[Any]:
        """Return the attention of each layer, at a site of `SITES`, by default of the stack.

        Raises:
            ValueError: the model has no such site, or attention without weights.
        """
        site, sites = site or SITES[self.family][0], SITES[self.family]
        if site not in sites:
            raise OptionError(f"`site` must be among {', '.join(sites)}, but is {site}")
        stack = self.stack if site == "encoder" else self.model.decoder
        found = [
            layer.encoder_attn if site == "cross" else layer.self_attn for layer in stack.layers
        ]
        for attention in found:
            if not isinstance(attention.attention, SoftmaxAttention):
                raise ValueError(
                    f"`attention_type` must be 'vanilla', but is {attention.attention.name!r}: "
                    "only softmax attention has a weight for each pair of words."
                )
        return found


def wrap_model(
    family: str, model: Any, dictionary: Dictionary, *, has_bos: bool = False
) -> LoadedStack:
    """Wrap a model that is built already.

    Args:
        family: the model's registered name.
        model: the model.
        dictionary: the dictionary of its input.
        has_bos: whether a language model was trained with <s> before each sample. A masked model
            has both <s> and </s>, a translation's source only </s>.
    """
    if family == ROBERTA:
        return LoadedStack(family, model, model.encoder.sentence_encoder, dictionary, 1, 1)
    if family == LM:
        return LoadedStack(family, model, model.decoder, dictionary, int(has_bos), 0)
    return LoadedStack(family, model, model.encoder, dictionary, 0, 1)


def load_stack(checkpoint: Path, data: Path, *, cpu: bool = False) -> LoadedStack:
    """Load a checkpoint of any of the package's models, in float64.

    Args:
        checkpoint: the checkpoint's file.
        data: the folder with the dictionaries of the training.
        cpu: use the CPU even where there is a GPU.

    Raises:
        ValueError: the checkpoint is missing, damaged, or of another model, task or dictionary.
    """
    tasks = [task for names in TASKS.values() for task in names]
    state = read_trained(checkpoint, models=list(TASKS), tasks=tasks)
    family = state["cfg"]["model"]["_name"]
    path, vocabularies = _find_vocabularies(family, checkpoint, state, data)
    check_vocabulary(checkpoint, state, *vocabularies)
    model, config, _ = build_trained(checkpoint, state, data)
    model.double().to(choose_device(cpu=cpu))
    dictionary = Dictionary.load(str(path))
    if family == ROBERTA:
        dictionary.add_symbol(MASK)
    has_bos = bool(getattr(config.task, "add_bos_token", False))
    found = wrap_model(family, model, dictionary, has_bos=has_bos)
    languages = languages_of(state, checkpoint, data) if family == TRANSLATION else ()
    return replace(found, languages=languages)


def _find_vocabularies(
    family: str, checkpoint: Path, state: Mapping[str, Any], data: Path
) -> tuple[Path, list[Vocabulary]]:
    """Return the path of the input's dictionary, and all vocabularies."""
    tables: tuple[str, ...] = SIDE_TABLES
    if family == TRANSLATION:
        names = [f"dict.{language}.txt" for language in languages_of(state, checkpoint, data)]
    else:
        of_glue = data / "input0"  # where sentence tasks keep the subwords' dictionary
        data = of_glue if of_glue.is_dir() else data
        names, tables = ["dict.txt"], (ROBERTA_TABLE if family == ROBERTA else DECODER_TABLE,)
    for name in names:
        if not (data / name).is_file():
            raise DataError(f"--data {data} does not hold {name}")
    sides = zip(names, tables, strict=True)
    return data / names[0], [Vocabulary.read(data / name, table) for name, table in sides]
