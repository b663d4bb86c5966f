"""Options that every model shares, as fairseq's dataclasses (flags and YAML alike)."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.attention import ATTENTIONS, FEATURE_MAPS, Attention, build_attention
from fairseq_plugins.attention.linear import MIN_COSINE, NORMALIZERS
from fairseq_plugins.encodings import PositionEncoding

logger = logging.getLogger(__name__)


@dataclass
class PositionEncodingConfig(FairseqDataclass):
    """Which position encoding and which attention."""

    attention_type: ChoiceEnum(list(ATTENTIONS)) = field(
        default="vanilla", metadata={"help": "softmax (vanilla) or linear attention"}
    )
    position_encoding: str = field(
        default="base",
        metadata={
            "help": "name of a position encoding, or several joined by '+'; "
            "`fairseq-pe encodings` lists them"
        },
    )
    position_encoding_options: str = field(
        default="",
        metadata={
            "help": "options of the encoding as words, 'p=identity rotated=all'; with several "
            "encodings 'shaw.max_distance=16'"
        },
    )
    feature_map: ChoiceEnum(list(FEATURE_MAPS)) = field(
        default="elu", metadata={"help": "feature map of linear attention; elu is 1 + elu"}
    )
    linear_normalizer: ChoiceEnum(list(NORMALIZERS)) = field(
        default="encoded",
        metadata={
            "help": "denominator of linear attention: from the encoded features (LRPE, Eq. 39), "
            "from the plain ones, or none"
        },
    )
    min_cosine: float = field(
        default=MIN_COSINE,
        metadata={
            "help": "floor under a denominator of linear attention that can come near zero, as a "
            "share of its bound; 0 for none, LRPE's Eq. 39 exactly"
        },
    )


def check_linear_options(config: PositionEncodingConfig, attention_types: Collection[str]) -> None:
    """Refuse options of linear attention where no attention of a model is linear.

    Recipes name them with their defaults, which are no choice; other values would be ignored.

    Raises:
        ValueError: one that is not its default.
    """
    types = sorted({str(attention_type) for attention_type in attention_types})
    if "linear" in types:
        return
    defaults = PositionEncodingConfig()
    for name in ("feature_map", "linear_normalizer", "min_cosine"):
        value, default = getattr(config, name), getattr(defaults, name)
        if value != default:
            raise ValueError(
                f"`{name}` must be {default} where no attention is linear, but is {value!s} "
                f"instead with attention_type={' and '.join(types)}."
            )


def build_model_attention(
    config: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    *,
    attention_type: str,
    num_heads: int,
    head_dim: int,
    causal: bool,
    dropout: float,
) -> Attention:
    """An attention with the options that concern its type.

    Attention dropout acts on softmax weights; linear attention has none to drop, and the LRPE
    paper, Table 7, uses it for vanilla attention only.
    """
    if attention_type == "linear":
        if dropout:
            logger.info("attention_dropout=%s applies to vanilla attention only", dropout)
        options = {
            "feature_map": config.feature_map,
            "normalizer": config.linear_normalizer,
            "min_cosine": config.min_cosine,
        }
    else:
        options = {"dropout": dropout}
    return build_attention(
        attention_type,
        encoding,
        num_heads=num_heads,
        head_dim=head_dim,
        causal=causal,
        **options,
    )
