"""Options that every model shares, as fairseq's dataclasses (flags and YAML alike)."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.attention import ATTENTIONS, FEATURE_MAPS, Attention, build_attention
from fairseq_plugins.attention.normalizers import (
    EPSILON,
    MIN_COSINE,
    NORMALIZERS,
    OUTPUT_NORM,
    defaults_of,
)
from fairseq_plugins.attention.output_norm import OUTPUT_NORMS
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
            "help": "denominator of linear attention: from the encoded features with a floor "
            "(encoded; LRPE, Eq. 39), from the plain ones (plain), max(sum, linear_epsilon) as in "
            "the LRPE authors' code of 2022 (clamped), a norm over the heads' output in its place "
            "as in their code since 2023 (output_norm), or none"
        },
    )
    min_cosine: float = field(
        default=MIN_COSINE,
        metadata={
            "help": "of linear_normalizer=encoded or plain: floor under a denominator that can "
            "come near zero, as a share of its bound; 0 for none, LRPE's Eq. 39 exactly"
        },
    )
    linear_epsilon: float = field(
        default=EPSILON,
        metadata={"help": "of linear_normalizer=clamped: the smallest denominator"},
    )
    linear_output_norm: ChoiceEnum(list(OUTPUT_NORMS)) = field(
        default=OUTPUT_NORM,
        metadata={"help": "of linear_normalizer=output_norm: the kind of norm"},
    )


# Options of the models with the names that `LinearAttention` has for them.
NORMALIZER_OPTIONS = {
    "min_cosine": "min_cosine",
    "linear_epsilon": "epsilon",
    "linear_output_norm": "output_norm",
}


def check_linear_options(config: PositionEncodingConfig, attention_types: Collection[str]) -> None:
    """Refuse options that no linear attention of a model uses.

    Recipes name them with their defaults, which are no choice; other values would be ignored.

    Raises:
        ValueError: one that is not its default, or a ``linear_epsilon`` that is not positive.
    """
    types = sorted({str(attention_type) for attention_type in attention_types})
    if "linear" in types:
        used = defaults_of(str(config.linear_normalizer))
        unused = [name for name, own in NORMALIZER_OPTIONS.items() if own not in used]
        where = f"with linear_normalizer={config.linear_normalizer!s}"
    else:
        unused = ["feature_map", "linear_normalizer", *NORMALIZER_OPTIONS]
        where = f"where no attention is linear (attention_type={' and '.join(types)})"
    defaults = PositionEncodingConfig()
    for name in unused:
        value, default = getattr(config, name), getattr(defaults, name)
        if value != default:
            raise ValueError(f"`{name}` must be {default} {where}, but is {value!s} instead.")
    if not 0 < config.linear_epsilon < float("inf"):
        raise ValueError(
            f"`linear_epsilon` must be positive and finite, but is {config.linear_epsilon} instead."
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
        used = defaults_of(str(config.linear_normalizer))
        options = {
            "feature_map": config.feature_map,
            "normalizer": config.linear_normalizer,
            **{
                own: getattr(config, name)
                for name, own in NORMALIZER_OPTIONS.items()
                if own in used
            },
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
