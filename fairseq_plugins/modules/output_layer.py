"""Inputs of the output layer, for criterions that never build the logits."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fairseq_plugins.common.errors import OptionError


class LogitInputs(NamedTuple):
    """Features (N, C) with the output weight (V, C) and bias (V,) or None."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None


def decoder_logit_inputs(model: Any, features: Tensor, criterion: str) -> LogitInputs:
    """Return the flattened features (B, T, C) of a decoder with its output matrix.

    Args:
        model: a model with a fairseq ``decoder``.
        features: the decoder's output with ``features_only``.
        criterion: name of the criterion, for error messages.

    Raises:
        OptionError: the output layer is not a single matrix.
    """
    decoder = model.decoder
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise OptionError(
            f"`adaptive_softmax_cutoff` must be unset with the criterion {criterion}, which needs "
            "the output as one matrix; with an adaptive softmax the criterion is adaptive_loss."
        )
    projection = getattr(decoder, "output_projection", None)
    if not isinstance(projection, nn.Linear):
        raise OptionError(
            f"`criterion` must be one that takes logits, such as "
            f"{criterion.removeprefix('blockwise_')}, where the decoder is a "
            f"{type(decoder).__name__} without a linear output projection, but is {criterion}."
        )
    return LogitInputs(features.flatten(0, -2), projection.weight, projection.bias)


def masked_logit_inputs(model: Any, features: Tensor, masked: Tensor) -> LogitInputs:
    """Return the features of the masked tokens of a RoBERTa after the dense layer of its head.

    Args:
        model: a model with fairseq's ``encoder.lm_head``.
        features: (B, T, C), the encoder's output with ``features_only``.
        masked: (B, T), True at tokens to predict.
    """
    head = model.encoder.lm_head
    inner = head.layer_norm(head.activation_fn(head.dense(features[masked])))
    return LogitInputs(inner, head.weight, head.bias)
