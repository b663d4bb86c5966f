"""BERT between Hugging Face's folders and fairseq's checkpoints of ``pe_roberta``.

    folder of Hugging Face   config.json, model.safetensors or pytorch_model.bin, and
                             tokenizer.json or vocab.txt
    folder of fairseq        model.pt, dict.txt, tokenizer.json, and vocab.txt if it was there

fairseq's <s>, <pad>, </s>, <unk> and <mask> are BERT's [CLS], [PAD], [SEP], [UNK] and [MASK]. The
vector of segment 0, which every token of a single text has, becomes part of the word embedding:
since the output is tied to it, all logits of a token then differ from BERT's by one number, and
their softmax does not. Where segment 1 has another vector, the difference of the two is what the
option ``segments=pairs`` adds to the second text of a pair.
"""

import logging
from pathlib import Path

import torch
from torch import Tensor

from fairseq_plugins.common.dictionaries import MASK, SPECIAL_SYMBOLS
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary
from fairseq_plugins.integrations.conversion import (
    read_our_state,
    read_their_state,
    write_checkpoint,
    write_their_folder,
)
from fairseq_plugins.integrations.folders import CONFIG_FILE
from fairseq_plugins.integrations.masked_models import (
    OUR_POSITIONS,
    OUR_SEGMENT,
    OUR_WORDS,
    POSITIONS,
    TYPES,
    Family,
    read_config,
)
from fairseq_plugins.integrations.wordpiece_files import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    read_vocabulary,
    tokens_in_our_order,
    write_tokenizer,
)

logger = logging.getLogger(__name__)

BERT = Family(
    "bert",
    "BertForMaskedLM",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
    segments=(2, 1),
)
DICTIONARY_FILE = "dict.txt"


def to_fairseq(source: Path, target: Path) -> None:
    """Write a Hugging Face folder of a BERT as a fairseq folder.

    source: of a BertModel or of one with a head; heads but the masked-LM one are left behind.
    target: an existing, empty folder.

    Raises:
        ValueError: a missing or damaged file, another architecture or vocabulary.
    """
    config = read_config(source, BERT)
    vocabulary = read_vocabulary(source)
    if config["vocab_size"] != len(vocabulary):
        raise ValueError(
            f"{source / CONFIG_FILE}: vocab_size must be that of the tokenizer beside it, "
            f"{len(vocabulary)}, but is {config['vocab_size']}"
        )
    tokens = tokens_in_our_order(vocabulary)
    rows = torch.tensor([vocabulary[token] for token in tokens])
    state, types = read_their_state(source, config, BERT, rows)
    state[OUR_WORDS] = state[OUR_WORDS] + types[0]
    if len(types) == 2 and not torch.equal(types[0], types[1]):
        state[OUR_SEGMENT] = types[1] - types[0]
    words = tokens[len(SPECIAL_SYMBOLS) : -1]
    write_tokenizer(source, target)
    lines = "".join(f"{word} 1\n" for word in words)
    (target / DICTIONARY_FILE).write_text(lines, encoding="utf-8", newline="\n")
    write_checkpoint(target, state, config, _symbols(words))
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(state))


def to_huggingface(source: Path, target: Path, tokenizer: Path) -> None:
    """Write a checkpoint of ``pe_roberta`` as a Hugging Face folder of a BertForMaskedLM.

    source: the checkpoint. target: an existing, empty folder. tokenizer: a folder with
    tokenizer.json or vocab.txt, that of the checkpoint's data.

    Raises:
        ValueError: a missing or damaged file, options that BERT does not have, or another
            vocabulary.
    """
    vocabulary = read_vocabulary(tokenizer)
    tokens = tokens_in_our_order(vocabulary)
    rows = torch.tensor([vocabulary[token] for token in tokens])
    symbols = _symbols(tokens[len(SPECIAL_SYMBOLS) : -1])
    known = Vocabulary(tokenizer / DICTIONARY_FILE, symbols, ROBERTA_TABLE)
    ours, state = read_our_state(source, BERT, known)
    extra = {POSITIONS: state[OUR_POSITIONS], TYPES: _types(state)}
    options = {"pad_token_id": vocabulary["[PAD]"]}
    write_tokenizer(tokenizer, target)
    write_their_folder(target, BERT, ours, state, rows, extra, options)
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(state))


def _types(state: dict[str, Tensor]) -> Tensor:
    """Their vectors of both segments (2, H): the first is part of the words, and so zero."""
    width = state[OUR_WORDS].size(1)
    second = state.get(OUR_SEGMENT, torch.zeros(width))
    return torch.stack([torch.zeros_like(second), second])


def _symbols(words: list[str]) -> tuple[str, ...]:
    return (*SPECIAL_SYMBOLS, *words, MASK)


__all__ = ["BERT", "TOKENIZER_FILE", "VOCABULARY_FILE", "to_fairseq", "to_huggingface"]
