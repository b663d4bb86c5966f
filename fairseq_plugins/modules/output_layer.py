"""What stands between a model's features and its logits, for who needs no logits."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fairseq_plugins.common.errors import OptionError


class Prediction(NamedTuple):
    """Features (N, C) with the weight (V, C) and the bias (V,) or None that make them logits."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None


def predict_by_decoder(model: Any, features: Tensor, criterion: str) -> Prediction:
    """Of a decoder's features (B, T, C).

    Args:
        model: with a ``decoder`` of fairseq's kind.
        features: what it returns under ``features_only``.
        criterion: its name on the command line, for errors.

    Raises:
        OptionError: an output layer that is no plain product with one matrix.
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
    return Prediction(features.flatten(0, -2), projection.weight, projection.bias)


def predict_masked(model: Any, features: Tensor, masked: Tensor) -> Prediction:
    """Of the masked tokens of a RoBERTa, through the dense part of its head.

    Args:
        model: with fairseq's ``encoder.lm_head``.
        features: (B, T, C), what it returns under ``features_only``.
        masked: (B, T), True where a token is to be predicted.
    """
    head = model.encoder.lm_head
    inner = head.layer_norm(head.activation_fn(head.dense(features[masked])))
    return Prediction(inner, head.weight, head.bias)
