"""DeBERTa: content-to-position and position-to-content scores, and the mask decoder."""

from functools import wraps
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.base import EncodingContext, PositionEncoding, Projection, widened
from fairseq_plugins.encodings.checks import check_at_least
from fairseq_plugins.encodings.offsets import occurring_offsets, products_by_offset
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.tables import check_within_table


@register_encoding(
    "deberta",
    known_as=("disentangled",),
    summary="content to relative position and back, one table for all layers",
    source="DeBERTa (He et al. 2020), Eq. 3 and 4; LRPE, Eq. 34",
    formula="logit (q_s.k_t + q_s.K_r[d(s-t)] + k_t.Q_r[d(t-s)]) / sqrt(3D), d(n) = clip(n + k)",
)
class DeBERTa(PositionEncoding):
    """q_s.K_r[delta(s, t)] + k_t.Q_r[delta(t, s)] joins q_s.k_t; all is divided by sqrt(3D).

    delta(i, j) = clip(i - j + k, 0, 2k - 1). K_r and Q_r are projections of one table P (2k, C),
    which all layers share. Unlike the release, there is no dropout on P.

    Args:
        max_distance: k; 512 in the released models, whose k is their longest input.
        projections: ``content``, the layer's query and key matrices with their biases, as in
            DeBERTa v2 and v3 (from ``bind_projections``; without it the rows of P count as
            projected). ``own``, W_qr (with a bias) and W_kr of Eq. 4 per layer, as in the v1
            release.
        terms: ``both``, or content to position (``c2p``) or position to content (``p2c``) alone,
            with the scale 1/sqrt(2D) as in the release.
        p2c_offset: rows of the second term: ``key_minus_query``, delta(t, s), as in Eq. 4 and
            LRPE, or ``query_minus_key``, delta(s, t), as in the released models (checked against
            their port in transformers), which negate query - key, then read rows as keys.

    Raises:
        ValueError: for a ``max_distance`` below 1, ``content`` where embed_dim is not num_heads *
            head_dim, or a ``p2c_offset`` without the term that it is about.
    """

    keeps_absolute_embedding = False

    def __init__(
        self,
        context: EncodingContext,
        *,
        max_distance: int = 512,
        projections: Literal["content", "own"] = "content",
        terms: Literal["both", "c2p", "p2c"] = "both",
        p2c_offset: Literal["key_minus_query", "query_minus_key"] = "key_minus_query",
    ) -> None:
        super().__init__(context)
        check_at_least(1, "max_distance", max_distance)
        if terms == "c2p" and p2c_offset != "key_minus_query":
            raise ValueError(f"`p2c_offset={p2c_offset}` needs `terms` with p2c, not {terms!r}.")
        self.max_distance, self.projections, self.terms = max_distance, projections, terms
        self.p2c_offset = p2c_offset
        features, width = context.num_heads * context.head_dim, context.embed_dim
        if projections == "content" and features != width:
            raise ValueError(
                "`projections` must be `own` where embed_dim is not num_heads * head_dim, "
                f"but is {projections!r} with {width} and {features}."
            )
        table = torch.randn(2 * max_distance, width, generator=context.generator)
        self.table = nn.Parameter(table * width**-0.5)
        has_query = projections == "own" and terms != "c2p"
        self.query_weight = self._draw() if has_query else None
        self.query_bias = nn.Parameter(torch.zeros(features)) if has_query else None
        self.key_weight = self._draw() if projections == "own" and terms != "p2c" else None
        # In a tuple, since as submodules they would be in the state dict twice.
        self._bound: tuple[Projection, Projection] | None = None

    def _draw(self) -> nn.Parameter:
        """Draw a matrix (H D, C), Glorot uniform."""
        context = self.context
        weight = torch.empty(context.num_heads * context.head_dim, context.embed_dim)
        return nn.Parameter(nn.init.xavier_uniform_(weight, generator=context.generator))

    def share_with(self, first: PositionEncoding) -> None:
        """Use the first layer's P; projections are not shared."""
        assert isinstance(first, DeBERTa)
        self.table = first.table

    def bind_projections(self, q_proj: Projection, k_proj: Projection) -> None:
        """Project P by these two, unless the encoding has projections of its own.

        Raises:
            ValueError: a projection whose input does not have C features.
        """
        if self.projections == "own" or self._bound == (q_proj, k_proj):
            return
        for projection in (q_proj, k_proj):
            width = getattr(projection, "in_features", self.context.embed_dim)
            if width != self.context.embed_dim:
                raise ValueError(
                    f"`projections` must be `own` where keys have {width} features and the table "
                    f"embed_dim={self.context.embed_dim}, but is {self.projections!r}."
                )
        self._bound = (q_proj, k_proj)

    def logit_scale(self) -> float:
        """Return 1/sqrt(3D), or 1/sqrt(2D) with one term."""
        parts = 3 if self.terms == "both" else 2
        return float((parts * self.context.head_dim) ** -0.5)

    def _project(self, rows: Tensor, dtype: torch.dtype, *, keys: bool) -> Tensor:
        """Return K_r or Q_r of rows of P: (N, C) -> (N, H D).

        The layer's own projections compute in ``dtype``, that of the content.
        """
        weight = self.key_weight if keys else self.query_weight
        if weight is not None:
            bias = None if keys or self.query_bias is None else widened(self.query_bias)
            return F.linear(widened(rows), widened(weight), bias)
        if self._bound is None:
            return rows
        query_projection, key_projection = self._bound
        return (key_projection if keys else query_projection)(rows.to(dtype))

    def _term(self, x: Tensor, offsets: Tensor, bounds: tuple[int, int], *, keys: bool) -> Tensor:
        """Return x_i.X_r[clip(n_ij + k)]: (B, H, T, D), offsets (B or 1, T, S) -> (B, H, T, S).

        Only the rows between the ``bounds`` of the offsets are projected and multiplied.
        """
        k = self.max_distance
        low, high = (min(max(bound, -k), k - 1) for bound in bounds)
        rows = self.table[low + k : high + k + 1]
        projected = self._project(rows, x.dtype, keys=keys)
        heads = projected.unflatten(-1, (self.context.num_heads, -1)).transpose(0, 1)
        return products_by_offset(x, heads.to(x.dtype), offsets.clamp(low, high), low)

    def relative_logits(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor:
        """Return both terms (B, H, T, S); only rows for offsets that occur are multiplied.

        In a causal model later keys, which are hidden, get the terms of offset 0.
        """
        offsets, low, high = occurring_offsets(
            q_positions, k_positions, causal=self.context.causal, furthest=self.max_distance
        )
        terms = []
        if self.terms != "p2c":
            terms.append(self._term(q, offsets, (low, high), keys=True))
        if self.p2c_offset == "key_minus_query":
            offsets, low, high = -offsets, -high, -low
        if self.terms != "c2p":
            terms.append(self._term(k, offsets.mT, (low, high), keys=False).mT)
        return sum(terms, q.new_zeros(()))


@register_encoding(
    "deberta_emd",
    summary="deberta, and absolute positions in the input of the last two layers",
    source="DeBERTa (He et al. 2020), Section 3.2: enhanced mask decoder",
    formula="as deberta, and x_s + p_s before the last two layers, p_s learned",
)
def deberta_emd(
    context: EncodingContext,
    *,
    max_distance: int = 512,
    projections: Literal["content", "own"] = "content",
    terms: Literal["both", "c2p", "p2c"] = "both",
    p2c_offset: Literal["key_minus_query", "query_minus_key"] = "key_minus_query",
    decoder: Literal["inputs", "queries"] = "inputs",
) -> "DebertaWithMaskDecoder | DebertaWithQueryPasses":
    """DeBERTa with a learned table (max_positions, C) of absolute positions in the last two layers.

    With ``decoder=inputs`` the table is added to the input of the last two layers (of the only one
    in a stack of one). With ``decoder=queries`` the last layer runs twice as in the release: the
    queries of the first pass are content + position, those of the second are the output of the
    first, and keys and values of both are the content, which is the last layer's input. Keys then
    have no absolute positions.

    Args:
        context: of the model.
        max_distance: see ``deberta``.
        projections: see ``deberta``.
        terms: see ``deberta``.
        p2c_offset: see ``deberta``.
        decoder: ``inputs`` or ``queries``. Causal models support ``inputs`` only.

    Raises:
        ValueError: ``queries`` in a stack of one layer; and see ``deberta``.
    """
    return (DebertaWithQueryPasses if decoder == "queries" else DebertaWithMaskDecoder)(
        context,
        max_distance=max_distance,
        projections=projections,
        terms=terms,
        p2c_offset=p2c_offset,
    )


class DebertaWithMaskDecoder(DeBERTa):
    """``deberta_emd`` with ``decoder=inputs``; it has the options of ``DeBERTa``."""

    LAYERS = 2  # or passes of the last layer

    query_passes = 0  # passes of the last layer that add the table to queries only
    extrapolates = False
    is_relative = False

    # Options are read from the signature.
    @wraps(DeBERTa.__init__)  # type: ignore[misc]
    def __init__(self, context: EncodingContext, **options: Any) -> None:
        super().__init__(context, **options)
        self.absolute = Learned(context)

    def share_with(self, first: PositionEncoding) -> None:
        """Use the first layer's tables."""
        super().share_with(first)
        assert isinstance(first, DebertaWithMaskDecoder)
        self.absolute = first.absolute

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        return frozenset(range(max(num_layers - self.LAYERS, 0), num_layers))

    def embed(self, x: Tensor, positions: Tensor, **_: Tensor | None) -> Tensor:
        """Add p to x: (B, T, C) -> (B, T, C).

        Raises:
            ValueError: for a position from ``max_positions`` on.
        """
        check_within_table(self.label, positions, self.context.max_positions)
        return self.absolute.embed(x, positions)


@register_encoding(
    "deberta_emd_queries",
    summary="deberta, whose last layer runs twice with absolute positions in its queries alone",
    source="DeBERTa (He et al. 2020), Section 3.2: enhanced mask decoder, as released",
    formula="as deberta, and the first queries of the last layer are of x_s + p_s, p_s learned",
)
class DebertaWithQueryPasses(DebertaWithMaskDecoder):
    """``deberta_emd`` with ``decoder=queries``, as in DeBERTa's release.

    Args:
        max_distance: see ``deberta``.
        projections: see ``deberta``.
        terms: see ``deberta``.
        p2c_offset: see ``deberta``.

    Raises:
        ValueError: in a stack of one layer; and see ``deberta``.
    """

    query_passes = DebertaWithMaskDecoder.LAYERS
    causal_refusal = (
        "with `decoder=queries` its last layer runs twice over the keys of a whole sequence, which "
        "decoding token by token does not have"
    )

    def embed_layers(self, num_layers: int) -> frozenset[int]:
        """Return the last layer.

        Raises:
            ValueError: a stack of one layer.
        """
        if num_layers < 2:
            raise ValueError(
                "`decoder=queries` of deberta_emd must have a layer before the last, but the "
                f"stack has {num_layers} instead."
            )
        return frozenset({num_layers - 1})
