"""Options and weight names of Hugging Face's BERT and RoBERTa, mapped to ``pe_roberta``.

Both have layer norms after each part and after the embeddings, and an output tied to the word
embedding. Vocabulary, segments and first position differ; see `bert` and `roberta`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.integrations.folders import CONFIG_FILE, read_json
from fairseq_plugins.modules.continued import STACKS
from fairseq_plugins.modules.identity import ROBERTA

STACK = STACKS[ROBERTA]
WORDS, POSITIONS, TYPES = (
    f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")
)
OUR_WORDS, OUR_POSITIONS = f"{STACK}embed_tokens.weight", f"{STACK}position_embedding.weight"
OUR_SEGMENT = f"{STACK}segment_embedding.weight"
OUR_HEAD = "encoder.lm_head."
TIED = f"{OUR_HEAD}weight"  # tied to the word embedding
ROWS_OF_VOCABULARY = (OUR_WORDS, f"{OUR_HEAD}bias")

# Hugging Face's options -> ours.
_SIZES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
}
_PROBABILITIES = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
OPTIONS = {**_SIZES, **_PROBABILITIES, "layer_norm_eps": "layer_norm_eps"}
_COUNTS = (*_SIZES, "vocab_size", "max_position_embeddings", "type_vocab_size")
_MOST = 10**6  # bound of sizes, so that a wrong number cannot exhaust the memory
_MOST_LAYERS = 1000
# Required values of Hugging Face's other options, which pe_roberta lacks; None: may be absent.
FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "tie_word_embeddings": (True, None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}
OUR_FIXED = {
    "attention_type": "vanilla",
    "activation_fn": "gelu",
    "encoder_normalize_before": False,
    "layernorm_embedding": True,
    "no_scale_embedding": True,
    "untie_weights_roberta": False,
    "no_token_positional_embeddings": False,
}
# Hugging Face's names -> our names with the weight's shape: hidden size H, feed-forward size F.
_LAYER = {
    "attention.self.query": ("self_attn.q_proj", "HH"),
    "attention.self.key": ("self_attn.k_proj", "HH"),
    "attention.self.value": ("self_attn.v_proj", "HH"),
    "attention.output.dense": ("self_attn.out_proj", "HH"),
    "attention.output.LayerNorm": ("self_attn_layer_norm", "H"),
    "intermediate.dense": ("fc1", "FH"),
    "output.dense": ("fc2", "HF"),
    "output.LayerNorm": ("final_layer_norm", "H"),
}


@dataclass(frozen=True)
class Family:
    """A family of Hugging Face masked language models."""

    model_type: str  # in config.json; prefix of weight names in models with a head
    architecture: str  # class with the output head
    dense: str  # name of the head's dense layer, without ``.weight``
    norm: str  # name of the head's layer norm, without ``.weight``
    bias: str  # name of the head's output bias
    classifier: tuple[str, str]  # names of the two layers of the sequence-classification head
    segments: tuple[int, ...]  # accepted numbers of token types


def body_weights(layers: int) -> dict[str, tuple[str, str]]:
    """Return our name and the shape of the weights below the head, by unprefixed name.

    Token types are left out. In shapes H is the hidden size, F that of the feed-forward layer, V
    the vocabulary, P positions, T token types.
    """
    found = {WORDS: (OUR_WORDS, "VH"), POSITIONS: (OUR_POSITIONS, "PH")}
    parts = {"embeddings.LayerNorm": (f"{STACK}layernorm_embedding", "H")}
    for index in range(layers):
        parts |= {
            f"encoder.layer.{index}.{theirs}": (f"{STACK}layers.{index}.{ours}", shape)
            for theirs, (ours, shape) in _LAYER.items()
        }
    return found | _with_biases(parts)


def head_weights(family: Family) -> dict[str, tuple[str, str]]:
    """Return the weights of the head except the shared word embedding, as `body_weights`."""
    parts = {family.dense: (f"{OUR_HEAD}dense", "HH"), family.norm: (f"{OUR_HEAD}layer_norm", "H")}
    return {**_with_biases(parts), family.bias: (f"{OUR_HEAD}bias", "V")}


def _with_biases(parts: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    found = {}
    for theirs, (ours, shape) in parts.items():
        found[f"{theirs}.weight"] = f"{ours}.weight", shape
        found[f"{theirs}.bias"] = f"{ours}.bias", shape[0]
    return found


def sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes in a config.json by the letters of `body_weights`."""
    names = {
        "H": "hidden_size",
        "F": "intermediate_size",
        "V": "vocab_size",
        "P": "max_position_embeddings",
        "T": "type_vocab_size",
    }
    return {letter: config[name] for letter, name in names.items()}


def read_config(folder: Path, family: Family) -> dict[str, Any]:
    """Read and check the config.json of a family's folder.

    Raises:
        ValueError: naming the file, the option, its accepted values and its value.
    """
    path = folder / CONFIG_FILE
    config = read_json(path)
    check_options(path, config, {"model_type": (family.model_type,), **FIXED})
    if absent := [name for name in (*_COUNTS, *OPTIONS) if name not in config]:
        raise CheckpointError(f"{path} lacks {', '.join(dict.fromkeys(absent))}")
    for name in _COUNTS:
        most = _MOST_LAYERS if name == "num_hidden_layers" else _MOST
        if type(config[name]) is not int or not 1 <= config[name] <= most:
            raise CheckpointError(f"{path}: {name} must be 1 to {most}, but is {config[name]!r}")
    check_options(path, config, {"type_vocab_size": family.segments})
    for name in _PROBABILITIES:
        if not _is_number(config[name]) or not 0 <= config[name] < 1:
            raise CheckpointError(
                f"{path}: {name} must be at least 0 and below 1, but is {config[name]!r}"
            )
    eps = config["layer_norm_eps"]
    if not _is_number(eps) or not 0 < eps < 1:
        raise CheckpointError(f"{path}: layer_norm_eps must be above 0 and below 1, but is {eps!r}")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if width % heads:
        raise CheckpointError(
            f"{path}: hidden_size must be a multiple of num_attention_heads={heads}, but is {width}"
        )
    return config


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def check_options(
    path: Path, options: Mapping[str, Any], fixed: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise CheckpointError for the first option without an accepted value."""
    for name, values in fixed.items():
        if options.get(name) not in values:
            words = " or ".join(repr(value) for value in values if value is not None)
            raise CheckpointError(f"{path}: {name} must be {words}, but is {options.get(name)!r}")
