"""Model ``pe_transformer_lm``: fairseq's language model with any encoding and attention."""

from dataclasses import dataclass
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding, TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.modules import AdaptiveInput

from fairseq_plugins.common.vocabulary import DECODER_TABLE
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.continued import initialize_from, pop_init_from
from fairseq_plugins.modules.continued_options import ContinuedConfig
from fairseq_plugins.modules.cutoffs import parse_cutoffs
from fairseq_plugins.modules.decoder import PositionalDecoder
from fairseq_plugins.modules.evaluated import EvaluatedModel
from fairseq_plugins.modules.identity import LM
from fairseq_plugins.modules.options import PositionEncodingConfig, check_linear_options
from fairseq_plugins.modules.training_checks import check_model
from fairseq_plugins.modules.training_state import FreshTrainingState
from fairseq_plugins.modules.vocabulary import DictionaryConfig


@dataclass
class PETransformerLMConfig(
    TransformerLanguageModelConfig, PositionEncodingConfig, ContinuedConfig, DictionaryConfig
):
    """Options of fairseq's ``transformer_lm`` and of its position encoding."""


# Unsupported options of fairseq's transformer_lm, for modules that are replaced here.
_UNSUPPORTED = {
    "character_embeddings": False,
    "decoder_xformers_att_config": None,
    "base_layers": 0,
    "decoder_layers_to_keep": None,
}


# With tied tables these options of the softmax must equal those of the input.
_TIED = {
    "adaptive_softmax_cutoff": "adaptive_input_cutoff",
    "adaptive_softmax_factor": "adaptive_input_factor",
    "decoder_output_dim": "decoder_input_dim",
}


def _check_tied(args: Any) -> None:
    """Check that `tie_adaptive_weights` has matching input and output tables to tie."""
    if not args.tie_adaptive_weights:
        return
    if not args.adaptive_input:
        raise ValueError(
            "`adaptive_input` must be True with tie_adaptive_weights, but is False instead."
        )
    for name, other in _TIED.items():
        value, required = getattr(args, name), getattr(args, other)
        if name.endswith("cutoff"):
            value, required = parse_cutoffs(name, value), parse_cutoffs(other, required)
        if value != required:
            raise ValueError(
                f"`{name}` must equal {other}={required} with tie_adaptive_weights, but is {value} "
                "instead."
            )


def _check_shared(args: Any) -> None:
    """Check that `share_decoder_input_output_embed` has one table to share."""
    if not args.share_decoder_input_output_embed:
        return
    if args.adaptive_input:
        raise ValueError(
            "`share_decoder_input_output_embed` must be False with adaptive_input, but is True; "
            "`tie_adaptive_weights` shares its tables."
        )
    if args.decoder_output_dim != args.decoder_input_dim:
        raise ValueError(
            f"`decoder_output_dim` must equal decoder_input_dim={args.decoder_input_dim} with "
            f"share_decoder_input_output_embed, but is {args.decoder_output_dim} instead."
        )


@register_model("pe_transformer_lm", dataclass=PETransformerLMConfig)
class PETransformerLM(FreshTrainingState, EvaluatedModel, FairseqLanguageModel):
    """A causal language model.

    ``--attention-type``, ``--position-encoding`` and ``--position-encoding-options`` choose the
    attention and the encoding; all other options are fairseq's.
    """

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "PETransformerLM":
        """Build a model from flags or a composed config.

        Raises:
            ValueError: an unsupported option, an option that the encodings reject, or a mismatching
                checkpoint to start or resume from.
        """
        check_numbers(args, LM, _UNSUPPORTED)
        _check_tied(args)
        _check_shared(args)
        check_linear_options(args, [args.attention_type])
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = args.tokens_per_sample
        if args.tokens_per_sample > args.max_target_positions:
            raise ValueError(
                f"`tokens_per_sample` must be at most max_target_positions="
                f"{args.max_target_positions}, but is {args.tokens_per_sample} instead."
            )
        check_model(args, task, [DECODER_TABLE])
        initial = pop_init_from(args)
        config = TransformerConfig.from_namespace(args)
        cutoffs = parse_cutoffs("adaptive_softmax_cutoff", args.adaptive_softmax_cutoff)
        config.adaptive_softmax_cutoff = cutoffs
        embed_tokens = cls._build_embedding(args, task.source_dictionary)
        model = cls(PositionalDecoder(config, args, task.target_dictionary, embed_tokens))
        if initial is not None:
            initialize_from(model, initial, args, task, LM)
        return model

    @staticmethod
    def _build_embedding(args: Any, dictionary: Any) -> Any:
        if not args.adaptive_input:
            return Embedding(len(dictionary), args.decoder_input_dim, dictionary.pad())
        if args.adaptive_input_cutoff is None:
            raise ValueError(
                "`adaptive_input_cutoff` must be numbers joined by commas with adaptive_input, "
                "as in 20000,60000, but is None instead."
            )
        return AdaptiveInput(
            len(dictionary),
            dictionary.pad(),
            args.decoder_input_dim,
            args.adaptive_input_factor,
            args.decoder_embed_dim,
            parse_cutoffs("adaptive_input_cutoff", args.adaptive_input_cutoff),
            args.quant_noise_pq,
            args.quant_noise_pq_block_size,
        )
