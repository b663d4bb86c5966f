"""RoBERTa between Hugging Face's folders and fairseq's checkpoints of ``pe_roberta``.

    folder of Hugging Face   config.json, model.safetensors, vocab.json, merges.txt
    folder of fairseq        model.pt, dict.txt, and the pieces: encoder.json, vocab.bpe

Weights only change their names, and rows of the vocabulary their order: both sides name GPT-2's
pieces, fairseq by their ids in encoder.json. Hugging Face's position table has two more rows, and
its one token type, which every token has, is added to the positions.
"""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.masked_lm import MaskedLMConfig
from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary, check_vocabulary, digest
from fairseq_plugins.data.gpt2_bpe import DICTIONARY_FILE, MERGES_FILE, Pieces
from fairseq_plugins.modules.continued import STACKS, rename_learned_table
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.modules.roberta_options import PERobertaConfig

logger = logging.getLogger(__name__)

STACK = STACKS[ROBERTA]
CHECKPOINT_FILE = "model.pt"
CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE = "config.json", "model.safetensors", "vocab.json"
THEIR_MERGES_FILE = "merges.txt"
THEIR_FILES = (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, THEIR_MERGES_FILE)
_PAD = 1  # in both
_FIRST_POSITION = _PAD + 1  # the row of position 0 in Hugging Face's table
_LAYER_NORM_EPS = 1e-5  # torch's default, which fairseq has

# Their options -> ours.
_OPTIONS = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
# What their other options have to be, since nothing here is like another value; None: or absent.
_THEIR_FIXED = {
    "model_type": ("roberta",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "layer_norm_eps": (_LAYER_NORM_EPS,),
    "pad_token_id": (_PAD,),
    "type_vocab_size": (1,),
    "tie_word_embeddings": (True, None),
    "is_decoder": (False, None),
}
_OUR_FIXED = {
    "attention_type": "vanilla",
    "activation_fn": "gelu",
    "encoder_normalize_before": False,
    "layernorm_embedding": True,
    "no_scale_embedding": True,
    "untie_weights_roberta": False,
    "no_token_positional_embeddings": False,
}
_POSITIONS, _TYPES = (
    f"roberta.embeddings.{kind}_embeddings.weight" for kind in ("position", "token_type")
)
_OUR_POSITIONS = f"{STACK}position_embedding.weight"
# Parts of names, theirs -> ours; each stands for a weight, most for a bias, too.
_OUTSIDE = {
    "roberta.embeddings.word_embeddings": f"{STACK}embed_tokens",
    "roberta.embeddings.LayerNorm": f"{STACK}layernorm_embedding",
    "lm_head.dense": "encoder.lm_head.dense",
    "lm_head.layer_norm": "encoder.lm_head.layer_norm",
}
_INSIDE = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
# Theirs that nothing here needs: tied copies, numbers 0 to n, and a pooler that is not RoBERTa's.
_NOT_NEEDED = re.compile(
    r"lm_head\.decoder\.(weight|bias)|roberta\.embeddings\.position_ids|roberta\.pooler\..*"
)
_ROWS_OF_VOCABULARY = (
    f"{STACK}embed_tokens.weight",
    "encoder.lm_head.weight",
    "encoder.lm_head.bias",
)


def names(layers: int) -> dict[str, str]:
    """Every weight but positions and token types: their name -> ours."""
    pairs = dict(_OUTSIDE)
    for index in range(layers):
        pairs |= {
            f"roberta.encoder.layer.{index}.{theirs}": f"{STACK}layers.{index}.{ours}"
            for theirs, ours in _INSIDE.items()
        }
    result = {"lm_head.bias": "encoder.lm_head.bias"}
    for theirs, ours in pairs.items():
        result[f"{theirs}.weight"] = f"{ours}.weight"
        if not theirs.endswith("word_embeddings"):
            result[f"{theirs}.bias"] = f"{ours}.bias"
    return result


def to_fairseq(source: Path, target: Path, pieces: Path) -> None:
    """Write a Hugging Face folder as a fairseq folder.

    source: of a RobertaForMaskedLM. target: an existing, empty folder. pieces: GPT-2's, or those
    the model was trained with; the vocabulary is put in the order of their dict.txt.

    Raises:
        ValueError: a missing or damaged file, another architecture or other pieces.
    """
    absent = [name for name in THEIR_FILES if not (source / name).is_file()]
    if absent:
        raise ValueError(f"{source} does not hold {', '.join(absent)}")
    theirs = _read_json(source / CONFIG_FILE)
    _check_options(source / CONFIG_FILE, theirs, _THEIR_FIXED)
    if unsaid := [name for name in _OPTIONS if name not in theirs]:
        raise ValueError(f"{source / CONFIG_FILE} does not say {', '.join(unsaid)}")
    known = Pieces.load(pieces)
    tokens = tokens_of(known)
    _check_merges(source / THEIR_MERGES_FILE, pieces / MERGES_FILE)
    rows = _rows(source / VOCABULARY_FILE, tokens)
    weights = _read_weights(source / WEIGHTS_FILE, theirs["num_hidden_layers"])
    state = {ours: weights[name] for name, ours in names(theirs["num_hidden_layers"]).items()}
    # Padding, which has another row, is masked.
    state[_OUR_POSITIONS] = weights[_POSITIONS][_FIRST_POSITION:] + weights[_TYPES]
    state["encoder.lm_head.weight"] = state[f"{STACK}embed_tokens.weight"]
    for name in _ROWS_OF_VOCABULARY:
        if len(state[name]) != len(rows):
            raise ValueError(
                f"{source / WEIGHTS_FILE} has {len(state[name])} rows for a vocabulary of "
                f"{len(rows)} tokens"
            )
        state[name] = state[name][rows]
    symbols = _vocabulary(known).symbols
    model = PERobertaConfig(position_encoding="learned", dictionary_digest=digest(symbols))
    for name, option in _OPTIONS.items():
        setattr(model, option, theirs[name])
    model.max_positions = len(state[_OUR_POSITIONS])
    known.copy(target)
    torch.save(_checkpoint(state, model), target / CHECKPOINT_FILE)
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(state))


def to_huggingface(source: Path, target: Path, pieces: Path) -> None:
    """Write a checkpoint of ``pe_roberta`` as a Hugging Face folder.

    source: the checkpoint. target: an existing, empty folder. pieces: those of its data.

    Raises:
        ValueError: a missing or damaged file, options that Hugging Face's model does not have,
            or pieces that are not the checkpoint's.
    """
    checkpoint = read_checkpoint(source)
    require_names(source, checkpoint, [ROBERTA])
    ours = checkpoint["cfg"]["model"]
    _check_options(source, ours, {name: (value,) for name, value in _OUR_FIXED.items()})
    encoding = ours.get("position_encoding")
    if encoding != "learned" and not (encoding == "base" and ours.get("encoder_learned_pos")):
        raise ValueError(
            f"{source}: position_encoding must be learned, the one that Hugging Face's model has, "
            f"but is {encoding!r}"
        )
    state = dict(checkpoint["model"])
    rename_learned_table(state, STACK, _PAD)
    known = Pieces.load(pieces)
    tokens = tokens_of(known)
    pairs = names(ours["encoder_layers"])
    needed = {*pairs.values(), _OUR_POSITIONS, "encoder.lm_head.weight"}
    _check_names(source, state, needed, needed)
    check_vocabulary(source, checkpoint, _vocabulary(known))
    weights = {name: state[mine].contiguous().clone() for name, mine in pairs.items()}
    table = state[_OUR_POSITIONS]
    weights[_POSITIONS] = torch.cat([table.new_zeros(_FIRST_POSITION, table.size(1)), table])
    weights[_TYPES] = table.new_zeros(1, table.size(1))
    config = {name: ours[option] for name, option in _OPTIONS.items()} | {
        "architectures": ["RobertaForMaskedLM"],
        "vocab_size": len(tokens),
        "max_position_embeddings": len(weights[_POSITIONS]),
        "bos_token_id": known.dictionary.bos(),
        "eos_token_id": known.dictionary.eos(),
        **{name: values[0] for name, values in _THEIR_FIXED.items()},
    }
    (target / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    (target / VOCABULARY_FILE).write_text(json.dumps(vocabulary))
    (target / THEIR_MERGES_FILE).write_bytes((pieces / MERGES_FILE).read_bytes())
    save_file(weights, target / WEIGHTS_FILE, metadata={"format": "pt"})
    logger.info("%s: %d symbols, %d weights", source, len(tokens), len(weights))


def _vocabulary(pieces: Pieces) -> Vocabulary:
    symbols = (*pieces.dictionary.symbols, MASK)
    return Vocabulary(pieces.folder / DICTIONARY_FILE, symbols, ROBERTA_TABLE)


def tokens_of(pieces: Pieces) -> list[str]:
    """The symbols of fairseq's dictionary with the mask, as Hugging Face writes them."""
    spelled = {str(number): piece for number, piece in pieces.encoder.decoder.items()}
    return [*(spelled.get(symbol, symbol) for symbol in pieces.dictionary.symbols), MASK]


def _rows(path: Path, tokens: list[str]) -> Tensor:
    """Their ids of our symbols in our order."""
    theirs = _read_json(path)
    ours = set(tokens)
    absent = [token for token in tokens if token not in theirs]
    foreign = [token for token in theirs if token not in ours]
    if absent or foreign:
        which, some = ("lacks", absent) if absent else ("has, beyond the pieces,", foreign)
        raise ValueError(
            f"{path} {which} {len(some)} tokens, the first is {some[0]!r}: it is of other pieces"
        )
    ids = [theirs[token] for token in tokens]
    if sorted(ids) != list(range(len(ids))):
        raise ValueError(f"{path}: ids must be 0 to {len(ids) - 1}, each once")
    return torch.tensor(ids)


def _check_merges(theirs: Path, ours: Path) -> None:
    one, other = _read_merges(theirs), _read_merges(ours)
    if one != other:
        same = [a == b for a, b in zip(one, other, strict=False)]
        number = same.index(False) if False in same else len(same)
        raise ValueError(f"{theirs} is of other pieces than {ours}: merge {number + 1} differs")


def _read_merges(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line and not line.startswith("#version")]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it must be an object")
    return content


def _check_options(
    path: Path, options: Mapping[str, Any], fixed: Mapping[str, tuple[Any, ...]]
) -> None:
    for name, values in fixed.items():
        if options.get(name) not in values:
            raise ValueError(f"{path}: {name} must be {values[0]!r}, but is {options.get(name)!r}")


def _check_names(
    path: Path, weights: Mapping[str, Tensor], needed: set[str], known: set[str]
) -> None:
    absent, foreign = sorted(needed - weights.keys()), sorted(weights.keys() - known)
    for what, some in (("lacks", absent), ("has no place for", foreign)):
        if some:
            raise ValueError(f"{path} {what} {len(some)} weights: {', '.join(some[:6])}")


def _read_weights(path: Path, layers: int) -> dict[str, Tensor]:
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    unused = sorted(name for name in weights if _NOT_NEEDED.fullmatch(name))
    for name in unused:
        del weights[name]
    if unused:
        logger.info("not needed: %s", ", ".join(unused))
    needed = {*names(layers), _POSITIONS, _TYPES}
    _check_names(path, weights, needed, needed)
    return weights


def _checkpoint(state: dict[str, Tensor], model: PERobertaConfig) -> dict[str, Any]:
    """What fairseq writes, without an optimiser's state; plain data alone."""
    config = OmegaConf.structured(FairseqConfig)
    config.model = OmegaConf.merge(OmegaConf.structured(model), {"_name": ROBERTA})
    task = MaskedLMConfig(data=".", tokens_per_sample=model.max_positions)
    config.task = OmegaConf.merge(OmegaConf.structured(task), {"_name": "masked_lm"})
    return {
        "args": None,
        "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "model": state,
        "optimizer_history": [
            {
                "criterion_name": "MaskedLmLoss",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {},
                "num_updates": 0,
            }
        ],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
        "task_state": {},
    }
