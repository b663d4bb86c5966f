"""Conversion of RoBERTa between Hugging Face folders and ``pe_roberta`` checkpoints.

    Hugging Face folder   config.json, model.safetensors or pytorch_model.bin, and vocab.json
                          with merges.txt or tokenizer.json
    fairseq folder        model.pt, dict.txt, and GPT-2's tokenizer: encoder.json, vocab.bpe

Weights change only their names, and vocabulary rows their order: fairseq names GPT-2's subwords by
their ids in encoder.json. Hugging Face's position table has two more rows, and its single token
type is added to the positions.
"""

import itertools
import json
import logging
from pathlib import Path

import torch
from torch import Tensor

from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary
from fairseq_plugins.data.gpt2_bpe import DICTIONARY_FILE, MERGES_FILE, Gpt2Tokenizer
from fairseq_plugins.integrations.conversion import (
    read_fairseq_state,
    read_huggingface_state,
    write_checkpoint,
    write_huggingface_folder,
)
from fairseq_plugins.integrations.folders import CONFIG_FILE, read_json
from fairseq_plugins.integrations.masked_models import (
    OUR_POSITIONS,
    POSITIONS,
    TYPES,
    Family,
    check_options,
    read_config,
)

logger = logging.getLogger(__name__)

ROBERTA = Family(
    "roberta",
    "RobertaForMaskedLM",
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    bias="lm_head.bias",
    classifier=("classifier.dense", "classifier.out_proj"),
    segments=(1,),
)
VOCABULARY_FILE, THEIR_MERGES_FILE, TOKENIZER_FILE = "vocab.json", "merges.txt", "tokenizer.json"
OPTIONS_FILE = "tokenizer_config.json"
_PAD = 1  # padding index on both sides
_FIRST_POSITION = _PAD + 1  # the row of position 0 in Hugging Face's table


def to_fairseq(source: Path, target: Path, tokenizer: Path) -> None:
    """Convert a Hugging Face RoBERTa folder to a fairseq folder.

    Args:
        source: folder of a RobertaModel or a subclass; only a masked-LM head is converted.
        target: existing empty folder.
        tokenizer: folder of GPT-2's tokenizer, or that of the model's training; the vocabulary is
            put in the order of its dict.txt.

    Raises:
        ValueError: a missing or damaged file, another architecture or tokenizer.
    """
    config = read_config(source, ROBERTA)
    check_options(source / CONFIG_FILE, config, {"pad_token_id": (_PAD,)})
    options = source / OPTIONS_FILE
    if options.is_file():  # our tokenizer puts no space in front of a text
        check_options(options, read_json(options), {"add_prefix_space": (False, None)})
    bpe = Gpt2Tokenizer.load(tokenizer)
    tokens = tokens_of(bpe)
    path, vocabulary, merges = _read_tokenizer(source)
    _check_merges(path, merges, tokenizer / MERGES_FILE)
    rows = _rows(path, vocabulary, tokens)
    state, types = read_huggingface_state(source, config, ROBERTA, rows)
    # The row of padding may be dropped: padding is masked.
    state[OUR_POSITIONS] = state[OUR_POSITIONS][_FIRST_POSITION:] + types
    bpe.copy(target)
    write_checkpoint(target, state, config, _vocabulary(bpe).symbols)
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(state))


def to_huggingface(source: Path, target: Path, tokenizer: Path) -> None:
    """Convert a ``pe_roberta`` checkpoint to a Hugging Face folder of a RoBERTa with its heads.

    Args:
        source: the checkpoint.
        target: existing empty folder.
        tokenizer: folder of the tokenizer of its data.

    Raises:
        ValueError: a missing or damaged file, options that RoBERTa does not have, or another
            tokenizer than the checkpoint's.
    """
    bpe = Gpt2Tokenizer.load(tokenizer)
    tokens = tokens_of(bpe)
    ours, state, labels = read_fairseq_state(source, ROBERTA, _vocabulary(bpe))
    table = state[OUR_POSITIONS]
    extra = {
        POSITIONS: torch.cat([table.new_zeros(_FIRST_POSITION, table.size(1)), table]),
        TYPES: table.new_zeros(1, table.size(1)),
    }
    options = {
        "pad_token_id": _PAD,
        "bos_token_id": bpe.dictionary.bos(),
        "eos_token_id": bpe.dictionary.eos(),
        **labels,
    }
    vocabulary = {token: index for index, token in enumerate(tokens)}
    (target / VOCABULARY_FILE).write_text(json.dumps(vocabulary))
    (target / THEIR_MERGES_FILE).write_bytes((tokenizer / MERGES_FILE).read_bytes())
    (target / OPTIONS_FILE).write_text(json.dumps({"model_max_length": len(table)}) + "\n")
    rows = torch.arange(len(tokens))
    write_huggingface_folder(target, ROBERTA, ours, state, rows, extra, options)
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(state))


def _vocabulary(bpe: Gpt2Tokenizer) -> Vocabulary:
    symbols = (*bpe.dictionary.symbols, MASK)
    return Vocabulary(bpe.folder / DICTIONARY_FILE, symbols, ROBERTA_TABLE)


def tokens_of(bpe: Gpt2Tokenizer) -> list[str]:
    """Return fairseq's symbols and the mask in Hugging Face's spelling."""
    spelled = {str(number): piece for number, piece in bpe.encoder.decoder.items()}
    return [*(spelled.get(symbol, symbol) for symbol in bpe.dictionary.symbols), MASK]


def _read_tokenizer(source: Path) -> tuple[Path, dict[str, int], list[str]]:
    """Read the token file's path, the token ids and the merges, from two files or tokenizer.json.

    Raises:
        ValueError: a missing or damaged file, or a tokenizer other than byte-level BPE.
    """
    two = source / VOCABULARY_FILE, source / THEIR_MERGES_FILE
    path = source / TOKENIZER_FILE
    absent = [one.name for one in two if not one.is_file()]
    if not absent:
        return two[0], read_json(two[0]), _read_merges(two[1])
    if not path.is_file():
        raise CheckpointError(f"{source} does not hold {', '.join(absent)}, or {TOKENIZER_FILE}")
    content = read_json(path)
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise CheckpointError(f"{path} must be of byte-level BPE, but is not")
    try:
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
        pairs = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
        return path, {**model["vocab"], **added}, pairs
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: it has no vocabulary or no merges") from error


def _rows(path: Path, theirs: dict[str, int], tokens: list[str]) -> Tensor:
    """Return their ids of our symbols, in our order."""
    ours = set(tokens)
    absent = [token for token in tokens if token not in theirs]
    foreign = [token for token in theirs if token not in ours]
    if absent or foreign:
        which, some = ("lacks", absent) if absent else ("has other", foreign)
        raise CheckpointError(
            f"{path} is of another tokenizer: it {which} {len(some)} tokens, first {some[0]!r}"
        )
    ids = [theirs[token] for token in tokens]
    if any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise CheckpointError(f"{path}: ids must be 0 to {len(ids) - 1}, each once")
    return torch.tensor(ids)


def _check_merges(path: Path, theirs: list[str], ours: Path) -> None:
    pairs = enumerate(itertools.zip_longest(theirs, _read_merges(ours)), start=1)
    if number := next((number for number, (one, other) in pairs if one != other), None):
        raise CheckpointError(f"{path} is of another tokenizer than {ours}: merge {number} differs")


def _read_merges(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line and not line.startswith("#version")]
