"""Options of ``pe_roberta``; fairseq's ``roberta`` defines its own only as flags."""

from dataclasses import dataclass
from typing import Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP

from fairseq_plugins.common.option_field import option
from fairseq_plugins.modules.continued_options import ContinuedConfig
from fairseq_plugins.modules.options import PositionEncodingConfig
from fairseq_plugins.modules.vocabulary import DictionaryConfig

_ACTIVATIONS = ChoiceEnum(utils.get_available_activation_fns())
_SEGMENTS = ChoiceEnum(["none", "pairs"])
LAYER_NORM_EPS = 1e-5  # PyTorch's default, used by fairseq's models


@dataclass
class RobertaConfig(FairseqDataclass):
    """fairseq's options of ``roberta``, with the defaults of ``roberta_base``."""

    encoder_layers: int = option(12, "number of layers")
    encoder_embed_dim: int = option(768, "width")
    encoder_ffn_embed_dim: int = option(3072, "width of the feed-forward part")
    encoder_attention_heads: int = option(12, "number of heads")
    activation_fn: _ACTIVATIONS = option(
        "gelu", "activation of the feed-forward part and the LM head"
    )
    pooler_activation_fn: _ACTIVATIONS = option("tanh", "activation of classification heads")
    dropout: float = option(0.1, "dropout")
    attention_dropout: float = option(0.1, "dropout of attention weights")
    activation_dropout: float = option(0.0, "dropout after the activation")
    pooler_dropout: float = option(0.0, "dropout in classification heads")
    max_positions: Optional[int] = option(
        None, "longest sequence; by default tokens_per_sample or max_positions of the task"
    )
    encoder_normalize_before: bool = option(False, "layer norm before each part of a layer")
    layernorm_embedding: bool = option(True, "layer norm of the embedded tokens")
    encoder_learned_pos: bool = option(
        True, "the framework's own embedding, `base`, is learned as in BERT; else sinusoidal"
    )
    no_scale_embedding: bool = option(True, "do not multiply embeddings by sqrt(width)")
    no_token_positional_embeddings: bool = option(
        False, "no absolute embedding beside a relative encoding"
    )
    untie_weights_roberta: bool = option(False, "the LM head has weights of its own")
    load_checkpoint_heads: bool = option(False, "(re-)register heads that a checkpoint has")
    spectral_norm_classification_head: bool = option(False, "spectral norm of classification heads")
    encoder_layerdrop: float = option(0.0, "probability of dropping a layer")
    quant_noise_pq: float = option(0.0, "quantisation noise (iterative PQ)")
    quant_noise_pq_block_size: int = option(8, "block size of quantisation noise")
    quant_noise_scalar: float = option(0.0, "scalar quantisation noise")
    checkpoint_activations: bool = option(False, "recompute activations: less memory, more time")
    offload_activations: bool = option(
        False, "checkpoint activations, and keep the layer inputs in CPU memory"
    )
    mha_reg_scale_factor: float = option(0.0, "weight of the L1 norm of attention projections")
    ffn_reg_scale_factor: float = option(0.0, "weight of the L1 norm of feed-forward weights")
    encoder_layers_to_keep: Optional[str] = option(None, "not supported")
    mha_heads_to_keep: int = option(-1, "not supported")
    ffn_blocks_to_remove: int = option(-1, "not supported")
    min_params_to_wrap: int = option(DEFAULT_MIN_PARAMS_TO_WRAP, "not supported")


@dataclass
class PERobertaConfig(RobertaConfig, PositionEncodingConfig, ContinuedConfig, DictionaryConfig):
    """Options of fairseq's ``roberta`` and of its position encoding."""

    min_positions: int = option(
        0,
        "minimum number of positions to build the encodings for; set it to that of the "
        "pre-trained model, since fairseq sets max_positions to a task's truncation length",
    )
    layer_norm_eps: float = option(
        LAYER_NORM_EPS,
        "epsilon of the layer norms of embeddings, layers and LM head; BERT has 1e-12",
    )
    segments: _SEGMENTS = option(
        "none",
        "pairs: add a learned vector to tokens after the first </s> of a row, like "
        "BERT's embedding of the second sentence",
    )
    label_digest: str = option(
        "",
        "written into checkpoints by fine-tuning: digest of the ordered class labels; data with "
        "another digest is an error",
    )
