"""Linear attention with a feature map: time and memory linear in the length."""

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.attention.base import Attention, State
from fairseq_plugins.attention.call import Call, without_padding
from fairseq_plugins.attention.distances import advances, check_span, key_range
from fairseq_plugins.attention.feature_maps import FEATURE_MAPS, VANISHING_MAPS
from fairseq_plugins.attention.normalizers import (
    NORMALIZER,
    UNDIVIDED,
    Normalizer,
    complete_options,
)
from fairseq_plugins.attention.output_norm import OutputNorm, OutputNormKind
from fairseq_plugins.encodings import LinearFacts, PositionEncoding
from fairseq_plugins.encodings.base import TRANSFORM_HOOKS
from fairseq_plugins.encodings.position_bounds import is_recorded
from fairseq_plugins.encodings.properties import ENCODED
from fairseq_plugins.kernels import LinearState, causal_linear_attention, linear_attention
from fairseq_plugins.kernels.linear import attend_state, remember_keys
from fairseq_plugins.kernels.normalizer import LEAST_COSINE
from fairseq_plugins.kernels.precision import without_autocast

_HALF = (torch.float16, torch.bfloat16)
# Bound of float16 outputs, with which the output projection of 512 features stays in range.
LARGEST_HALF = 4096.0
_HALF_MAX = torch.finfo(torch.float16).max
# Tokens and tokens per feature of a head. Random ones had outputs of 1e8 at 300 tokens in heads of
# 8 features, 1,024 of 16, 8,192 of 32 and 64 (rope, lrpe_type2: benchmark `denominators`).
_LONG, _LONG_PER_FEATURE = 1024, 32
_NEAR_ZERO = (
    "`normalizer` is clamped: beyond {} tokens its denominators can come near 0 and outputs be as "
    "large as 1e9; encoded does not have this."
)


class LinearAttention(Attention):
    """phi(q)~ (sum phi(k)~ v^T) over a denominator (LRPE, Eq. 31 and 39), ~ the encoding.

    A decay multiplies the running sums, including that of an encoded denominator.

    Args:
        encoding, num_heads, head_dim, causal: see ``Attention``.
        feature_map: phi, a key of ``FEATURE_MAPS``; an encoding's own (``cosformer``) overrides it.
        normalizer: the denominator. ``clamped`` (the default): max(sum of Eq. 39, ``epsilon``), as
            in the LRPE authors' code of 2022; float16 outputs are clamped to ``LARGEST_HALF``, and
            encodings whose sums cancel (``lrpe_type8``, ``lrpe_dct``) raise an error in float16.
            ``output_norm``: a norm over all heads' outputs instead, as in their code since
            January 2023. ``encoded``: LRPE, Eq. 39, kept from 0 by ``min_cosine`` if the encoding
            can make it negative; encodings that change norms (``xpos``) use ``plain``. ``plain``:
            from phi(q) and phi(k) before the encoding, always positive. ``none``: neither;
            float16 outputs end at float16's range.
        min_cosine: lower bound on the absolute denominator of ``encoded`` and ``plain``, as a
            share of its maximum |phi(q)~| sum |phi(k)~|; ``MIN_COSINE`` by default. The absolute
            weights of a query then sum to at most 1 / ``min_cosine``; 0 clamps at ``LEAST_COSINE``
            alone. It applies where denominators can be negative, and to ``plain`` with
            ``feature_map=relu``, where they can be 0; see ``floored_share``.
        epsilon: smallest denominator of ``clamped``, where it can be negative; ``EPSILON`` by
            default.
        output_norm: ``layer_norm`` (the default) or ``rms_norm``, for ``output_norm``.

    Raises:
        IncompatibleEncodingError: the encoding needs the T x S logits.
        ValueError: an unknown feature map or normalizer, an invalid option, or, in a pass, float16
            that cannot hold the outputs.
    """

    name = "linear"
    supported_hooks = TRANSFORM_HOOKS | {"embed"}
    needs = "the T x S logits, which linear attention never computes"
    gives_weights = False

    def __init__(
        self,
        encoding: PositionEncoding | None,
        *,
        num_heads: int,
        head_dim: int,
        causal: bool,
        feature_map: str = "elu",
        normalizer: Normalizer = NORMALIZER,
        min_cosine: float | None = None,
        epsilon: float | None = None,
        output_norm: OutputNormKind | None = None,
    ) -> None:
        super().__init__(encoding, num_heads=num_heads, head_dim=head_dim, causal=causal)
        if feature_map not in FEATURE_MAPS:
            raise ValueError(
                f"`feature_map` must be one of {list(FEATURE_MAPS)}, but is {feature_map!r}."
            )
        options = complete_options(
            normalizer, min_cosine=min_cosine, epsilon=epsilon, output_norm=output_norm
        )
        facts = LinearFacts.of(encoding) if encoding is not None else LinearFacts()
        if normalizer == "encoded" and not facts.keeps_norms:
            normalizer = "plain"
        self.feature_map = FEATURE_MAPS[facts.feature_map or feature_map]
        self.normalizer, self._transforms_features = normalizer, facts.transform_after_feature_map
        self._normalize = normalizer not in UNDIVIDED
        self.output_norm: OutputNorm | None = None
        if kind := options.get("output_norm"):
            self.output_norm = OutputNorm(kind, num_heads=num_heads, head_dim=head_dim)
            self._sized = ("q", "k", "v")
        transforms = bool(self.hooks & ENCODED)
        is_encoded = normalizer == "encoded" and transforms
        may_be_negative = transforms and not facts.keeps_positive
        self.epsilon: float | None = options.get("epsilon") if may_be_negative else None
        # The plain denominator can be 0 where the weights of encoded features are not.
        can_vanish = facts.feature_map is None and feature_map in VANISHING_MAPS
        is_vanishing = normalizer == "plain" and transforms and can_vanish
        if encoding is not None and is_vanishing and not facts.transform_after_feature_map:
            raise ValueError(
                "`normalizer` must not be plain with feature_map=relu and an encoding that acts "
                f"before the feature map, here {encoding.label}: plain features can all be 0 "
                "where encoded ones are not."
            )
        has_floor = is_vanishing or (normalizer == "encoded" and may_be_negative)
        self.min_cosine: float = options["min_cosine"] if has_floor else 0.0
        self._floor = max(self.min_cosine, LEAST_COSINE) if has_floor else 0.0
        sums_weights = is_encoded or (normalizer == "clamped" and transforms)
        # Norms that grow with the position would leave float16's range too.
        self._cancels = sums_weights and facts.sums_cancel
        self._long = min(_LONG, _LONG_PER_FEATURE * head_dim)
        # Largest output in float16, since a sum over clamped or no denominators has no bound.
        self._most_in_half = LARGEST_HALF if self.epsilon is not None else None
        if normalizer == "none":  # half, since `transform_output` may turn two features into one
            self._most_in_half = _HALF_MAX / (2 if "transform_output" in self.hooks else 1)
        self._is_exact = self._cancels or not facts.keeps_norms
        self.span = facts.positive_span if sums_weights and facts.keeps_positive else None
        self._decays = "log_decay" in self.hooks

    def _forward(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        if call.attn_mask is not None:
            raise ValueError(
                "`attn_mask` must be None for linear attention, which never computes the logits "
                f"that a mask of shape {tuple(call.attn_mask.shape)} would hide; causality is set "
                "when the attention is built."
            )
        _refuse_weights(need_weights)
        self._check_span(*call.positions)
        keys = call.state
        if self.epsilon and not torch.compiler.is_compiling() and keys["k"].size(2) > self._long:
            warnings.warn(_NEAR_ZERO.format(self._long), stacklevel=2)
        q, norm_q = self._features(call.q, "transform_query", call.q_positions)
        k, norm_k, v = self._encode_key(keys)
        attention = causal_linear_attention if self.causal else linear_attention
        if self._decays:
            log_decay, _ = self._log_decay(keys)
            attention = partial(causal_linear_attention, log_decay=log_decay)
        output = attention(q, k, v, normalizer_k=norm_k, **self._denominator(norm_q))
        assert isinstance(output, Tensor)
        return self._decode_output(output, call.q_positions, keys["v"].dtype), None

    def _step(self, call: Call, state: State | None) -> tuple[Tensor, State]:
        keys, positions = call.state, call.q_positions
        extra, log_decay = self._keep_range(keys, state), None
        if self._decays:
            log_decay, reached = self._log_decay(keys, state["last_position"] if state else None)
            extra["last_position"] = reached.expand(call.q.size(0), 1)
        q, norm_q = self._features(call.q, "transform_query", positions)
        k, norm_k, v = self._encode_key(keys)
        output = causal_linear_attention(
            q,
            k,
            v,
            normalizer_k=norm_k,
            **self._denominator(norm_q),
            log_decay=log_decay,
            initial_state=_sums(state) if state else None,
            return_state=True,
        )
        assert isinstance(output, tuple)
        decoded = self._decode_output(output[0], positions, keys["v"].dtype)
        return decoded, {**output[1]._asdict(), **extra}

    def _remember(self, keys: State) -> State:
        extra = self._keep_range(keys)
        k, norm_k, v = self._encode_key(keys)
        return {**remember_keys(k, v, normalizer_k=norm_k)._asdict(), **extra}

    def _attend(self, call: Call, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        _refuse_weights(need_weights)
        if self.span is not None:
            self._check_span(call.q_positions, call.state["k_range"])
        features, norm_q = self._features(call.q, "transform_query", call.q_positions)
        output = attend_state(features, _sums(call.state), **self._denominator(norm_q))
        return self._decode_output(output, call.q_positions, call.q.dtype), None

    def _denominator(self, normalizer_q: Tensor | None) -> dict[str, Any]:
        """Return the arguments of the kernels that concern the denominator."""
        return {
            "normalizer_q": normalizer_q,
            "normalize": self._normalize,
            "min_cosine": self._floor,
            "epsilon": self.epsilon,
        }

    def _check_inputs(self, key_padding_mask: Tensor | None = None, **inputs: Tensor) -> None:
        super()._check_inputs(key_padding_mask, **inputs)
        is_half = any(x.dtype == torch.float16 for x in inputs.values())
        if is_half and self._cancels and self.epsilon and self.epsilon < 1 / _HALF_MAX:
            assert self.encoding is not None
            raise ValueError(
                f"`normalizer` must not be clamped in float16 with {self.encoding.label}, whose "
                f"sums of weights can be 0: v / {self.epsilon:g} is beyond float16's range. Use "
                "bfloat16 or float32 (precision=bf16 or fp32), or normalizer=output_norm."
            )

    def _check_span(self, *positions: Tensor) -> None:
        """Check that no distance gives negative weights, whose sum is not clamped."""
        if self.span is not None and not is_recorded(positions[0]):
            assert self.encoding is not None
            check_span(self.encoding.label, self.span, *positions)

    def _keep_range(self, keys: State, state: State | None = None) -> State:
        """Check distances between keys; return ``{"k_range": (B, 2)}`` for the state, or {}."""
        if self.span is None:
            return {}
        before = state["k_range"] if state else None
        k_range = key_range(keys["k_positions"], keys["k"].size(0), before)
        self._check_span(k_range)
        return {"k_range": k_range}

    def _log_decay(self, keys: State, last: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the sums' log decay at each token (B or 1, H, T), and the position reached."""
        assert self.encoding is not None
        steps, reached = advances(keys["k_positions"], keys.get("key_padding_mask"), last)
        return self.encoding.log_decay().view(-1, 1) * steps.unsqueeze(1), reached

    def _decode_output(self, output: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Decode and cast the output, under autocast to its dtype."""
        device = output.device.type
        is_wide = output.dtype == torch.float64 or output.is_meta
        is_cast = not is_wide and torch.is_autocast_enabled(device)
        last = torch.get_autocast_dtype(device) if is_cast else dtype
        if self._most_in_half and last == torch.float16:
            output = output.clamp(-self._most_in_half, self._most_in_half)
        if self.output_norm is None:
            output = output.to(dtype)
        output = self._encoded("transform_output", output, positions)
        if self.output_norm is not None:
            output = self.output_norm(output).to(dtype)
        return output.to(last)

    @without_autocast
    def _features(self, x: Tensor, hook: str, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return features encoded by a hook, and those for the denominator if they differ.

        Half precision becomes float32 where gradients leave float16's range or sums cancel.
        """
        if x.dtype == torch.float16 or (self._is_exact and x.dtype in _HALF):
            x = x.float()
        if hook not in self.hooks:
            plain = self.feature_map(x)
            return plain, plain if self._decays and self.normalizer == "plain" else None
        if self._transforms_features:
            plain = self.feature_map(x)
            encoded = self._encoded(hook, plain, positions)
            return encoded, plain if self.normalizer == "plain" else None
        plain_or_none = self.feature_map(x) if self.normalizer == "plain" else None
        return self.feature_map(self._encoded(hook, x, positions)), plain_or_none

    def denominator_features(
        self, q: Tensor, k: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the features of queries and keys whose products add up to the denominator.

        Both are (B, H, T, D), or D' where encoded features have another size.

        Args:
            q: (B, H, T, D).
            k: (B, H, T, D).
            positions: (B or 1, T) of both.
        """
        positions = self._sampled(positions)
        features_q, plain_q = self._features(q, "transform_query", positions)
        features_k, plain_k = self._features(k, "transform_key", positions)
        if plain_q is None or plain_k is None:
            return features_q, features_k
        return plain_q, plain_k

    def _encode_key(self, keys: State) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the features of keys, zero where padded, those for the denominator, and values."""
        k, v = without_padding(keys, keys["k"], keys["v"])
        encoded, norm_k = self._features(k, "transform_key", keys["k_positions"])
        (encoded,) = without_padding(keys, encoded)
        if norm_k is not None:
            (norm_k,) = without_padding(keys, norm_k)
        v = self._encoded("transform_value", v, keys["k_positions"])
        if v.dtype in _HALF and (self._is_exact or (self.epsilon and v.dtype == torch.float16)):
            v = v.float()
        return encoded, norm_k, v


def _sums(state: State) -> LinearState:
    """Return the kernel's part of a state."""
    return LinearState(*(state[name] for name in LinearState._fields))


def _refuse_weights(need_weights: bool) -> None:
    if need_weights:
        raise ValueError(
            "`need_weights` must be False for linear attention, which never computes the weights."
        )
