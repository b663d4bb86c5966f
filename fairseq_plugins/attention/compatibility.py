"""Attentions by name, and checks of which encodings they support."""

import inspect
from typing import Any

from fairseq_plugins.attention.base import Attention
from fairseq_plugins.attention.linear import LinearAttention
from fairseq_plugins.attention.softmax import SoftmaxAttention
from fairseq_plugins.encodings import (
    ENCODINGS,
    IncompatibleEncodingError,
    PositionEncoding,
    build_encoding,
    parse_options,
)
from fairseq_plugins.encodings.registry import split_options

ATTENTIONS: dict[str, type[Attention]] = {
    "vanilla": SoftmaxAttention,
    "linear": LinearAttention,
}


def build_attention(
    attention_type: str,
    encoding: PositionEncoding | None,
    *,
    num_heads: int,
    head_dim: int,
    causal: bool,
    **options: Any,
) -> Attention:
    """Build an attention by name.

    Args:
        attention_type: ``vanilla`` or ``linear``.
        encoding: the encoding inside the attention; None for none. An attention does not call its
            ``embed``, which acts on the input of a model.
        num_heads: H.
        head_dim: D.
        causal: whether query s sees only keys t <= s.
        options: options of the attention: ``dropout`` of vanilla; ``feature_map``, ``normalizer``
            and the normalizer's options of linear.

    Raises:
        ValueError: an unknown attention or option, or an encoding that was built for other sizes
            or for the other value of ``causal``.
        IncompatibleEncodingError: the attention does not support the encoding; the message names
            the reason and alternatives.
    """
    if attention_type not in ATTENTIONS:
        raise ValueError(
            f"`attention` (`attention_type` in fairseq) must be one of {list(ATTENTIONS)}, where "
            f"vanilla is softmax, but is {attention_type!r}."
        )
    cls = ATTENTIONS[attention_type]
    _check_options(attention_type, options)
    try:
        return cls(encoding, num_heads=num_heads, head_dim=head_dim, causal=causal, **options)
    except IncompatibleEncodingError as error:
        alternatives = _alternatives(attention_type, encoding, causal)
        raise IncompatibleEncodingError(f"{error} {alternatives}", error.reason) from None


def _check_options(attention_type: str, options: dict[str, Any]) -> None:
    known = options_of(ATTENTIONS[attention_type])
    for name in options:
        if name in known:
            continue
        others = [other for other, cls in ATTENTIONS.items() if name in options_of(cls)]
        if others:
            raise ValueError(
                f"`{name}` must be left out under {attention_type} attention: it is an option of "
                f"{' and '.join(others)} attention."
            )
        raise ValueError(f"`{name}` must be one of {known}, the options of {attention_type}.")


def options_of(cls: type[Attention]) -> list[str]:
    """Return the names of an attention's options besides those of all attentions."""
    common = inspect.signature(Attention).parameters
    return [name for name in inspect.signature(cls).parameters if name not in common]


def _alternatives(attention_type: str, encoding: PositionEncoding | None, causal: bool) -> str:
    """Describe alternatives: other encodings, and attentions that support this one."""
    hooks = encoding.hooks if encoding is not None else frozenset[str]()
    others = [name for name, cls in ATTENTIONS.items() if not hooks - cls.supported_hooks]
    if attention_type in others and encoding is not None and encoding.causal_refusal:
        return "Another encoding or a bidirectional model would work."
    if attention_type in others:
        return "Another encoding or a causal model would work."
    supported = ATTENTIONS[attention_type].supported_hooks
    names = [
        name
        for name, entry in ENCODINGS.items()
        if not entry.hooks - supported and not entry.refusal(causal=causal)
    ]
    return (
        f"Use attention_type={' or '.join(others)}, or with {attention_type} attention one of: "
        f"{', '.join(sorted(names))}."
    )


def check_compatible(
    attention_type: str,
    position_encoding: str,
    position_encoding_options: str = "",
    *,
    causal: bool,
    num_heads: int = 8,
    head_dim: int = 64,
    max_positions: int = 1024,
) -> None:
    """Check that an attention supports an encoding, before any work starts.

    Args:
        attention_type: ``vanilla`` or ``linear``.
        position_encoding: name, or names joined by ``+``.
        position_encoding_options: options of the encoding, as in ``p=identity rotated=all``.
        causal: whether the model is causal.
        num_heads: H.
        head_dim: D.
        max_positions: longest sequence.

    Raises:
        IncompatibleEncodingError: the attention does not support the encoding.
        ValueError: an unknown name or option, or a bad value.
    """
    options: dict[str, Any] = dict(parse_options(position_encoding_options))
    # First, since an option such as `causal=true` would clash with build_encoding's argument.
    split_options(position_encoding, options)
    encoding = build_encoding(
        position_encoding,
        num_heads=num_heads,
        head_dim=head_dim,
        causal=causal,
        max_positions=max_positions,
        # Any size will do for this check.
        vocab_size=1,
        **options,
    )
    build_attention(attention_type, encoding, num_heads=num_heads, head_dim=head_dim, causal=causal)
