"""Model ``pe_roberta``: fairseq's RoBERTa with any position encoding and attention."""

import argparse
from dataclasses import fields
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP, TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_plugins.attention.multihead import FairseqMultiheadAttention
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.continued import initialize_from, pop_init_from
from fairseq_plugins.modules.encoder import PositionalEncoder
from fairseq_plugins.modules.evaluated import EvaluatedModel
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.options import check_linear_options
from fairseq_plugins.modules.roberta_options import PERobertaConfig
from fairseq_plugins.modules.segments import SegmentEmbedding
from fairseq_plugins.modules.span_head import SpanHead, upgrade_span_heads
from fairseq_plugins.modules.stack import build_stack_encodings
from fairseq_plugins.modules.training_checks import check_model
from fairseq_plugins.modules.training_state import FreshTrainingState

BERT_STD = 0.02  # initial standard deviation, as in fairseq's `init_bert_params`

# Unsupported options, which prune modules that are replaced here or wrap layers for FSDP.
_UNSUPPORTED = {
    "encoder_layers_to_keep": None,
    "mha_heads_to_keep": -1,
    "ffn_blocks_to_remove": -1,
    "min_params_to_wrap": DEFAULT_MIN_PARAMS_TO_WRAP,
}


def initialize_as_bert(model: nn.Module) -> None:
    """Initialise weights as fairseq's RoBERTa does, in the same order; encodings keep their own.

    Learned position tables are an exception: like BERT's, they are drawn as token embeddings are.
    On PyTorch's device `meta` nothing is drawn, since fairseq's function would copy from it.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return
    encodings = [m for m in model.modules() if isinstance(m, PositionEncoding)]
    kept = {module for encoding in encodings for module in encoding.modules()}
    # Exactly this class: subclasses do not add their table to the embeddings.
    tables = [encoding for encoding in encodings if type(encoding) is Learned]

    def initialize(module: nn.Module) -> None:
        if module in kept:
            return
        init_bert_params(module)
        if isinstance(module, FairseqMultiheadAttention):
            # fairseq draws these twice, but only for its own attention class.
            for projection in (module.q_proj, module.k_proj, module.v_proj):
                init_bert_params(projection)
        if isinstance(module, nn.Embedding):  # fairseq draws positions right after the tokens
            first = (module.padding_idx or 0) + 1  # row of position 0 in fairseq's table
            for table in tables:
                rows, width = table.weight.shape
                drawn = torch.empty(first + rows, width).normal_(std=BERT_STD)
                with torch.no_grad():
                    table.weight.copy_(drawn[first:])

    model.apply(initialize)


def set_layer_norm_eps(encoder: RobertaEncoder, eps: float) -> None:
    """Set the epsilon of all layer norms of the model except those inside encodings.

    Raises:
        ValueError: ``eps`` is not above 0 and below 1.
    """
    if not 0 < eps < 1:
        raise ValueError(f"`layer_norm_eps` must be above 0 and below 1, but is {eps} instead.")
    stack = encoder.sentence_encoder
    norms = [stack.layernorm_embedding, stack.layer_norm, encoder.lm_head.layer_norm]
    for index in range(len(stack.layers)):  # by index: iteration with LayerDrop skips layers
        layer = stack.layers[index]
        norms += [layer.self_attn_layer_norm, layer.final_layer_norm]
    for norm in norms:
        if norm is not None:
            norm.eps = eps


class PERobertaEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder with a replaced stack of layers."""

    def __init__(self, args: Any, dictionary: Any) -> None:
        super().__init__(args, dictionary)
        set_layer_norm_eps(self, args.layer_norm_eps)

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: Any) -> PositionalEncoder:
        """Build the stack, initialised as BERT except for the encodings."""
        config = TransformerConfig.from_namespace(args)
        # Keep the random state, so that the rest of the model is initialised as fairseq's.
        with torch.random.fork_rng(devices=[]):
            encodings = build_stack_encodings(
                args,
                config,
                "encoder",
                max_positions=config.max_source_positions,
                vocab_size=len(dictionary),
                base="learned" if args.encoder_learned_pos else "base",
                begins_with_cls=True,
                token_std=BERT_STD,
            )
        segments = None
        if str(args.segments) == "pairs":
            width = args.encoder_embed_dim
            segments = SegmentEmbedding(width, dictionary.pad(), dictionary.eos())
        encoder = PositionalEncoder(
            config, args, dictionary, embed_tokens, encodings=encodings, segments=segments
        )
        initialize_as_bert(encoder)
        return encoder


@register_model("pe_roberta", dataclass=PERobertaConfig)
class PERoberta(FreshTrainingState, EvaluatedModel, RobertaModel):
    """A bidirectional encoder with heads for masked tokens, classes and spans.

    ``--attention-type``, ``--position-encoding`` and ``--position-encoding-options`` choose the
    attention and the encoding; all other options are fairseq's. The encoding ``base`` is RoBERTa's
    learned table, or fairseq's sinusoidal one with ``encoder_learned_pos=False``.
    """

    def __init__(self, args: Any, encoder: PERobertaEncoder) -> None:
        # Skip RobertaModel's constructor, which would reinitialise the encodings.
        super(RobertaModel, self).__init__(encoder)
        self.args = args
        initialize_as_bert(self)
        self.classification_heads = nn.ModuleDict()
        self.span_heads = nn.ModuleDict()

    def register_span_head(self, name: str) -> None:
        """Add a new head for spans under a name."""
        head = SpanHead(self.args.encoder_embed_dim, self.args.pooler_dropout)
        init_bert_params(head.out_proj)
        self.span_heads[name] = head

    def forward(
        self, src_tokens: Tensor, *args: Any, span_head_name: str | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return fairseq's output for tokens (B, T), or that of a span head.

        With ``span_head_name``, return the logits (B, T, 2) of an answer's first and last token,
        -inf at padding.
        """
        if span_head_name is None:
            output: tuple[Tensor, dict[str, Any]] = super().forward(src_tokens, *args, **kwargs)
            return output
        features, extra = self.encoder(src_tokens, features_only=True)
        padding = src_tokens.eq(self.encoder.dictionary.pad())
        return self.span_heads[span_head_name](features, padding), extra

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        """Return no models: fairseq's published ones are of type ``roberta``."""
        return {}

    @staticmethod
    def add_args(parser: Any) -> None:
        """Add the dataclass's flags; options that are on by default get a flag and its negation.

        With fairseq's parser ``--layernorm-embedding`` would turn the option off.
        """
        for option in fields(PERobertaConfig):
            if option.default is True:
                name = option.name.replace("_", "-")
                opposite = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
                text = {"help": option.metadata["help"], "default": argparse.SUPPRESS}
                parser.add_argument(f"--{name}", dest=option.name, action="store_true", **text)
                parser.add_argument(f"--{opposite}", dest=option.name, action="store_false", **text)
        super(RobertaModel, PERoberta).add_args(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "PERoberta":
        """Build a model from flags or a composed config.

        Raises:
            ValueError: an unsupported option, an option that the encodings reject, or a mismatching
                initial checkpoint.
        """
        check_numbers(args, ROBERTA, _UNSUPPORTED)
        check_linear_options(args, [args.attention_type])
        longest = getattr(task.cfg, "tokens_per_sample", None) or task.max_positions()
        if args.max_positions is None:
            args.max_positions = longest
        if args.max_positions is not None:
            args.max_positions = max(args.max_positions, args.min_positions)
        if longest is not None and longest > args.max_positions:
            raise ValueError(
                f"`tokens_per_sample` must be at most max_positions={args.max_positions}, "
                f"but is {longest} instead."
            )
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)  # fairseq's encoder adds keys
        check_model(args, task, [ROBERTA_TABLE])
        initial = pop_init_from(args)
        model = cls(args, PERobertaEncoder(args, task.source_dictionary))
        if initial is not None:
            initialize_from(model, initial, args, task, ROBERTA)
        return model

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Upgrade as fairseq does, and match the heads for spans."""
        prefix = f"{name}." if name else ""
        register = self.register_span_head if self.args.load_checkpoint_heads else None
        upgrade_span_heads(self.span_heads, state_dict, prefix, register)
        super().upgrade_state_dict_named(state_dict, name)
