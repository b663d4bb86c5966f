"""``pe_transformer``: fairseq's encoder-decoder, any position encoding, any attention."""

from collections.abc import Iterator
from contextlib import contextmanager
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
from fairseq_plugins.modules.identity import TRANSLATION
from fairseq_plugins.modules.lengths import LengthLimits
from fairseq_plugins.modules.options import PositionEncodingConfig, check_linear_options
from fairseq_plugins.modules.restored import check_restored
from fairseq_plugins.modules.seeding import SeededSampling
from fairseq_plugins.modules.stack import check_cross_encoding, stack_widths
from fairseq_plugins.modules.training_checks import check_training
from fairseq_plugins.modules.training_state import FreshTrainingState
from fairseq_plugins.modules.transformer_options import (
    ATTENTION_SITES,
    PETransformerConfig,
    check_common_options,
    options_at,
    to_transformer_config,
)
from fairseq_plugins.modules.vocabulary import record_dictionary, vocabularies_of

_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@contextmanager
def _naming(site: str, options: PositionEncodingConfig) -> Iterator[None]:
    """Errors say which of the attentions they are about, and which options are its own."""
    try:
        yield
    except IncompatibleEncodingError as error:
        neutral = "none" if site == "cross" else "base"
        raise IncompatibleEncodingError(
            f"{_NAMES[site]} ({options.attention_type}, {options.position_encoding}): {error} "
            f"For this attention alone the options are `{site}_position_encoding`, as in "
            f"{site}_position_encoding={neutral}, and `{site}_attention_type`."
        ) from None
    except ValueError as error:
        raise ValueError(f"{_NAMES[site]}: {error}") from None


def _check_places(config: TransformerConfig, sites: dict[str, PositionEncodingConfig]) -> None:
    """Refuse what cannot be, before anything is built."""
    source, target = config.max_source_positions, config.max_target_positions
    longest = {"encoder": source, "decoder": target, "cross": max(source, target)}
    for site, options in sites.items():
        _, heads, head_dim = stack_widths(config, "encoder" if site == "encoder" else "decoder")
        # On a fork of the random numbers, so that weights are drawn as without this.
        with _naming(site, options), torch.random.fork_rng(devices=[]):
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


@register_model("pe_transformer", dataclass=PETransformerConfig)
class PETransformer(FreshTrainingState, LengthLimits, SeededSampling, TransformerModelBase):
    """A translation model.

    ``--attention-type``, ``--position-encoding`` and ``--position-encoding-options`` choose what is
    inside both self-attentions, ``--encoder-attention-type``, ``--decoder-position-encoding`` and
    so on what is inside one of them, ``--cross-attention-type`` and so on what is between them;
    the rest is fairseq's.

    Cross-attention sees the whole source and has no encoding unless it is given one; positions
    are then those of the target's tokens against those of the source's.
    """

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Flags of the dataclass, not of fairseq's nested one."""
        super(TransformerModelBase, PETransformer).add_args(parser)

    @classmethod
    def build_model(cls, args: PETransformerConfig, task: Any) -> "PETransformer":
        """Build a model from flags or a composed config.

        Raises:
            IncompatibleEncodingError: an encoding that one of the attentions cannot have; the
                message names the attention and its options.
            ValueError: a bad option, or a checkpoint to go on from that is of another model.
        """
        check_numbers(args, TRANSLATION)
        check_training(args, task)
        vocabularies = vocabularies_of(task, SIDE_TABLES)
        check_restored(args, vocabularies)
        record_dictionary(args, vocabularies)
        config = to_transformer_config(args)
        config.sites = {site: options_at(args, site) for site in ATTENTION_SITES}
        check_common_options(args)
        check_linear_options(args, [options.attention_type for options in config.sites.values()])
        _check_places(config, config.sites)
        model: PETransformer = super().build_model(config, task)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> PositionalEncoder:
        """fairseq's with the encoder's encoding and attention."""
        return PositionalEncoder(cfg, cfg.sites["encoder"], src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> PositionalDecoder:
        """fairseq's with the decoder's encoding and attention, and those of the cross-attention."""
        own, cross = cfg.sites["decoder"], cfg.sites["cross"]
        return PositionalDecoder(cfg, own, tgt_dict, embed_tokens, cross=cross)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq does, with seeded draws.

        Raises:
            ValueError: an alignment is asked for, but the cross-attention has no weights.
        """
        wants_weights = getattr(cfg.generation, "print_alignment", None)
        if wants_weights and not self.decoder.layers[-1].gives_weights:
            raise ValueError(
                "`print_alignment` must be off where cross_attention_type is "
                f"{self.cfg.sites['cross'].attention_type}, which never computes the weights."
            )
        super().prepare_for_inference_(cfg)
