"""Model ``pe_transformer``: fairseq's encoder-decoder with any position encoding and attention."""

from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from torch import nn

from fairseq_plugins.attention import check_compatible
from fairseq_plugins.common.vocabulary import SIDE_TABLES
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.decoder import PositionalDecoder
from fairseq_plugins.modules.encoder import PositionalEncoder
from fairseq_plugins.modules.evaluated import EvaluatedModel
from fairseq_plugins.modules.identity import TRANSLATION
from fairseq_plugins.modules.options import PositionEncodingConfig, check_linear_options
from fairseq_plugins.modules.stack import check_cross_encoding, stack_widths
from fairseq_plugins.modules.training_checks import check_model
from fairseq_plugins.modules.training_state import FreshTrainingState
from fairseq_plugins.modules.transformer_options import (
    ATTENTION_SITES,
    PETransformerConfig,
    check_common_options,
    options_at,
    to_transformer_config,
)

_UNSUPPORTED = {"encoder_layers_to_keep": None, "decoder_layers_to_keep": None}


@torch.random.fork_rng(devices=[])  # so that initial weights do not depend on this check
def _check_site(config: TransformerConfig, site: str, options: PositionEncodingConfig) -> None:
    """Check that an attention supports its encoding; errors name the attention and its options."""
    name = "cross-attention" if site == "cross" else f"{site} self-attention"
    source, target = config.max_source_positions, config.max_target_positions
    longest = {"encoder": source, "decoder": target, "cross": max(source, target)}
    _, heads, head_dim = stack_widths(config, "encoder" if site == "encoder" else "decoder")
    try:
        if site == "cross":
            check_cross_encoding(options.position_encoding)
        check_compatible(
            options.attention_type,
            options.position_encoding,
            options.position_encoding_options,
            causal=site == "decoder",
            num_heads=heads,
            head_dim=head_dim,
            max_positions=longest[site],
        )
    except IncompatibleEncodingError as error:
        neutral = "none" if site == "cross" else "base"
        raise IncompatibleEncodingError(
            f"{name} ({options.attention_type}, {options.position_encoding}): {error} "
            f"Options of this attention alone are `{site}_position_encoding`, as in "
            f"{site}_position_encoding={neutral}, and `{site}_attention_type`."
        ) from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


@register_model("pe_transformer", dataclass=PETransformerConfig)
class PETransformer(FreshTrainingState, EvaluatedModel, TransformerModelBase):
    """A translation model.

    ``--attention-type``, ``--position-encoding`` and ``--position-encoding-options`` apply to both
    self-attentions; options such as ``--encoder-attention-type`` or
    ``--decoder-position-encoding`` override them for one side, and ``--cross-attention-type`` and
    its like set the cross-attention. All other options are fairseq's.

    Cross-attention sees the whole source and has no encoding by default; with one, it relates
    positions of target tokens to positions of source tokens.
    """

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the flags of the flat dataclass instead of fairseq's nested one."""
        super(TransformerModelBase, PETransformer).add_args(parser)

    @classmethod
    def build_model(cls, args: PETransformerConfig, task: Any) -> "PETransformer":
        """Build a model from flags or a composed config.

        Raises:
            IncompatibleEncodingError: an attention does not support its encoding; the message names
                the attention and its options.
            ValueError: an invalid option, or a checkpoint of another model to resume from.
        """
        check_numbers(args, TRANSLATION, _UNSUPPORTED)
        check_model(args, task, SIDE_TABLES)
        config = to_transformer_config(args)
        config.sites = {site: options_at(args, site) for site in ATTENTION_SITES}
        check_common_options(args)
        check_linear_options(args, [options.attention_type for options in config.sites.values()])
        for site, options in config.sites.items():
            _check_site(config, site, options)
        model: PETransformer = super().build_model(config, task)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> PositionalEncoder:
        """Build the encoder with its own encoding and attention."""
        return PositionalEncoder(cfg, cfg.sites["encoder"], src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> PositionalDecoder:
        """Build the decoder with its own encoding, attention and cross-attention."""
        options, cross = cfg.sites["decoder"], cfg.sites["cross"]
        return PositionalDecoder(cfg, options, tgt_dict, embed_tokens, cross=cross)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare as fairseq does, and seed stochastic encodings.

        Raises:
            ValueError: an alignment is requested, but the cross-attention computes no weights.
        """
        if getattr(cfg.generation, "print_alignment", None):
            self._require_weights()
        super().prepare_for_inference_(cfg)

    @property
    def full_context_alignment(self) -> bool:
        """False: alignments are of causal attention.

        fairseq reads it before it makes an alignment, which a call of ``generate`` may request only
        after ``prepare_for_inference_``.

        Raises:
            ValueError: the cross-attention computes no weights.
        """
        self._require_weights()
        return False

    def _require_weights(self) -> None:
        if not self.decoder.layers[-1].gives_weights:
            raise ValueError(
                "`print_alignment` must be off with cross_attention_type="
                f"{self.cfg.sites['cross'].attention_type}, which computes no weights."
            )
