"""Options shared by all models, as fairseq dataclasses (flags and YAML)."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from fairseq_plugins.attention import ATTENTIONS, FEATURE_MAPS, Attention, build_attention
from fairseq_plugins.attention.normalizers import (
    EPSILON,
    MIN_COSINE,
    NORMALIZER,
    NORMALIZERS,
    OUTPUT_NORM,
    defaults_of,
)
from fairseq_plugins.attention.output_norm import OUTPUT_NORMS
from fairseq_plugins.common.option_field import option
from fairseq_plugins.encodings import PositionEncoding

logger = logging.getLogger(__name__)


@dataclass
class PositionEncodingConfig(FairseqDataclass):
    """Options of the position encoding and the attention."""

    attention_type: ChoiceEnum(list(ATTENTIONS)) = option(
        "vanilla", "softmax (vanilla) or linear attention"
    )
    position_encoding: str = option(
        "base",
        "name of a position encoding, or several joined by '+'; `fairseq-pe encodings` lists them",
    )
    position_encoding_options: str = option(
        "",
        "options of the encoding, as in 'p=identity rotated=all'; with several "
        "encodings 'shaw.max_distance=16'",
    )
    feature_map: ChoiceEnum(list(FEATURE_MAPS)) = option(
        "elu", "feature map of linear attention; elu is 1 + elu"
    )
    linear_normalizer: ChoiceEnum(list(NORMALIZERS)) = option(
        NORMALIZER,
        "denominator of linear attention: max(sum, linear_epsilon) as in the LRPE "
        "authors' code of 2022 (clamped); a norm of the heads' output instead, as in their "
        "code since 2023 (output_norm); the sum, kept from 0 by min_cosine (encoded; LRPE, "
        "Eq. 39); from the features without encoding (plain); or none",
    )
    min_cosine: float = option(
        MIN_COSINE,
        "with linear_normalizer=encoded or plain: lower bound of the denominator, as "
        "a fraction of its maximum, against division by almost 0; 0 disables it and is "
        "exactly Eq. 39 of LRPE",
    )
    linear_epsilon: float = option(
        EPSILON, "with linear_normalizer=clamped: the smallest denominator"
    )
    linear_output_norm: ChoiceEnum(list(OUTPUT_NORMS)) = option(
        OUTPUT_NORM, "with linear_normalizer=output_norm: the kind of norm"
    )


# Model options -> the corresponding arguments of `LinearAttention`.
NORMALIZER_OPTIONS = {
    "min_cosine": "min_cosine",
    "linear_epsilon": "epsilon",
    "linear_output_norm": "output_norm",
}


def unused_linear_options(attention_types: Collection[str], normalizer: str) -> list[str]:
    """Return the options of linear attention that have no effect.

    `linear_normalizer` itself is not one: recipes set it for whichever attention is chosen.
    """
    if "linear" not in attention_types:
        return ["feature_map", *NORMALIZER_OPTIONS]
    used = defaults_of(normalizer)
    return [name for name, argument in NORMALIZER_OPTIONS.items() if argument not in used]


def check_linear_options(config: PositionEncodingConfig, attention_types: Collection[str]) -> None:
    """Check that options of linear attention are at their defaults where they have no effect.

    Raises:
        ValueError: an option that no attention uses differs from its default, or
            ``linear_epsilon`` is not positive.
    """
    types = sorted({str(attention_type) for attention_type in attention_types})
    condition = f"where no attention is linear (attention_type={' and '.join(types)})"
    if "linear" in types:
        condition = f"with linear_normalizer={config.linear_normalizer!s}"
    defaults = PositionEncodingConfig()
    for name in unused_linear_options(types, str(config.linear_normalizer)):
        value, default = getattr(config, name), getattr(defaults, name)
        if value != default:
            raise ValueError(f"`{name}` must be {default} {condition}, but is {value!s} instead.")
    if not 0 < config.linear_epsilon < float("inf"):
        raise ValueError(
            f"`linear_epsilon` must be positive and finite, but is {config.linear_epsilon} instead."
        )


def build_model_attention(
    config: PositionEncodingConfig,
    encoding: PositionEncoding | None,
    *,
    num_heads: int,
    head_dim: int,
    causal: bool,
    dropout: float,
) -> Attention:
    """Build an attention, passing only the options of its type.

    Attention dropout applies to softmax weights only; the LRPE paper, Table 7, also uses it for
    vanilla attention alone.
    """
    if config.attention_type == "linear":
        if dropout:
            logger.info("attention_dropout=%s applies to vanilla attention only", dropout)
        unused = unused_linear_options(["linear"], str(config.linear_normalizer))
        options = {
            argument: getattr(config, name)
            for name, argument in NORMALIZER_OPTIONS.items()
            if name not in unused
        }
        options |= {"feature_map": config.feature_map, "normalizer": config.linear_normalizer}
    else:
        options = {"dropout": dropout}
    return build_attention(
        config.attention_type,
        encoding,
        num_heads=num_heads,
        head_dim=head_dim,
        causal=causal,
        **options,
    )
