"""Conversion of BERT between Hugging Face folders and ``pe_roberta`` checkpoints.

    Hugging Face folder   config.json, model.safetensors or pytorch_model.bin, and
                          tokenizer.json or vocab.txt
    fairseq folder        model.pt, dict.txt, tokenizer.json, and vocab.txt if it was there

fairseq's <s>, <pad>, </s>, <unk> and <mask> are BERT's [CLS], [PAD], [SEP], [UNK] and [MASK]. The
vector of segment 0 is added to the word embeddings. As the output is tied to them, all logits of a
token then differ from BERT's by a constant, which the softmax cancels. If segment 1 has another
vector, the difference becomes that of the option ``segments=pairs``.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.common.dictionaries import DICTIONARY_FILE, MASK, read_lines
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary
from fairseq_plugins.data.wordpiece import (
    CONFIG_FILE,
    NORMALIZER,
    OPTIONS,
    SYMBOLS,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    WordPieceTokenizer,
)
from fairseq_plugins.integrations.conversion import (
    read_fairseq_state,
    read_huggingface_state,
    write_checkpoint,
    write_huggingface_folder,
)
from fairseq_plugins.integrations.masked_models import (
    OUR_POSITIONS,
    OUR_SEGMENT,
    OUR_WORDS,
    POSITIONS,
    TYPES,
    Family,
    read_config,
)

logger = logging.getLogger(__name__)

BERT = Family(
    "bert",
    "BertForMaskedLM",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
    classifier=("bert.pooler.dense", "classifier"),
    segments=(2, 1),
)


def to_fairseq(source: Path, target: Path) -> None:
    """Convert a Hugging Face BERT folder to a fairseq folder.

    Args:
        source: folder of a BertModel or a subclass; only a masked-LM head is converted.
        target: existing empty folder.

    Raises:
        ValueError: a missing or damaged file, another architecture or vocabulary.
    """
    config = read_config(source, BERT)
    wordpiece = read_wordpiece(source)
    state, types = read_huggingface_state(source, config, BERT, _rows(wordpiece))
    state[OUR_WORDS] = state[OUR_WORDS] + types[0]
    if len(types) == 2 and not torch.equal(types[0], types[1]):
        state[OUR_SEGMENT] = types[1] - types[0]
    wordpiece.copy(target)
    _copy_lines(source, target)
    write_checkpoint(target, state, config, _symbols(wordpiece))
    logger.info("%s: %d symbols, %d weights", source, len(wordpiece.vocabulary), len(state))


def to_huggingface(source: Path, target: Path, tokenizer: Path) -> None:
    """Convert a ``pe_roberta`` checkpoint to a Hugging Face folder of a BERT with its heads.

    Args:
        source: the checkpoint.
        target: existing empty folder.
        tokenizer: folder with tokenizer.json or vocab.txt of the checkpoint's data.

    Raises:
        ValueError: a missing or damaged file, options that BERT does not have, or another
            vocabulary.
    """
    wordpiece = read_wordpiece(tokenizer)
    known = Vocabulary(tokenizer / DICTIONARY_FILE, _symbols(wordpiece), ROBERTA_TABLE)
    ours, state, labels = read_fairseq_state(source, BERT, known)
    first = torch.zeros(state[OUR_WORDS].size(1))  # it is part of the words
    types = torch.stack([first, state.get(OUR_SEGMENT, first)])
    extra = {POSITIONS: state[OUR_POSITIONS], TYPES: types}
    options = {"pad_token_id": wordpiece.vocabulary["[PAD]"], **labels}
    _write_huggingface_tokenizer(wordpiece, target, len(state[OUR_POSITIONS]))
    _copy_lines(tokenizer, target)
    write_huggingface_folder(target, BERT, ours, state, _rows(wordpiece), extra, options)
    logger.info("%s: %d symbols, %d weights", source, len(wordpiece.vocabulary), len(state))


def read_wordpiece(folder: Path) -> WordPieceTokenizer:
    """Read a WordPiece tokenizer; raise ValueError if vocab.txt and tokenizer.json differ."""
    names = (TOKENIZER_FILE, VOCABULARY_FILE)
    if not any((folder / name).is_file() for name in names):
        raise ValueError(f"{folder} does not hold {' or '.join(names)}")
    wordpiece, lines = WordPieceTokenizer.load(folder), folder / VOCABULARY_FILE
    if lines.is_file():
        tokens = [line.removesuffix("\r") for line in read_lines(lines)]
        if tokens != sorted(wordpiece.vocabulary, key=wordpiece.vocabulary.__getitem__):
            raise ValueError(f"{lines} must have the tokens of {TOKENIZER_FILE}, but has others")
    return wordpiece


def _symbols(wordpiece: WordPieceTokenizer) -> tuple[str, ...]:
    return (*wordpiece.dictionary.symbols, MASK)


def _rows(wordpiece: WordPieceTokenizer) -> Tensor:
    """Return BERT's index (V,) of each fairseq symbol."""
    theirs = {ours: token for token, ours in SYMBOLS.items()}
    tokens = [theirs.get(symbol, symbol) for symbol in _symbols(wordpiece)]
    return torch.tensor([wordpiece.vocabulary[token] for token in tokens])


def _copy_lines(source: Path, target: Path) -> None:
    if (source / VOCABULARY_FILE).is_file():
        shutil.copyfile(source / VOCABULARY_FILE, target / VOCABULARY_FILE)


def _write_huggingface_tokenizer(wordpiece: WordPieceTokenizer, target: Path, longest: int) -> None:
    """Write tokenizer.json with the special tokens, and tokenizer_config.json.

    transformers' BertTokenizer takes the vocabulary alone from tokenizer.json, so that the options
    of its normalizer, as lower case, have to be in the other file.

    longest: number of tokens that the model takes, to which `truncation=True` cuts.
    """
    from tokenizers import Tokenizer
    from tokenizers.processors import BertProcessing

    tokenizer = Tokenizer.from_str(json.dumps(wordpiece.content))
    tokenizer.add_special_tokens([*SYMBOLS])
    ends = ((token, wordpiece.vocabulary[token]) for token in ("[SEP]", "[CLS]"))
    tokenizer.post_processor = BertProcessing(*ends)
    tokenizer.save(str(target / TOKENIZER_FILE))
    normalizer = wordpiece.content.get("normalizer") or {}
    options: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}  # the file as it is
    if normalizer.get("type") == NORMALIZER:
        options = {name: normalizer.get(theirs) for name, theirs in OPTIONS.items()}
        options["tokenizer_class"] = "BertTokenizer"
    special = {f"{token.strip('[]').lower()}_token": token for token in SYMBOLS}
    options["model_max_length"] = longest
    (target / CONFIG_FILE).write_text(json.dumps({**options, **special}, indent=1) + "\n")
