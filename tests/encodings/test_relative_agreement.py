"""Content-dependent relative terms against transformers' independent XLNet and DeBERTa."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import PositionEncoding, build_encoding
from fairseq_plugins.encodings.deberta import DeBERTa
from fairseq_plugins.encodings.transformer_xl import TransformerXL

pytest.importorskip("transformers", reason="needs transformers to compare with")
from transformers import DebertaConfig, DebertaV2Config, XLNetConfig, XLNetModel
from transformers.models.deberta import modeling_deberta
from transformers.models.deberta_v2 import modeling_deberta_v2

BATCH, HEADS, DIM, LENGTH = 2, 3, 8, 11
WIDTH = HEADS * DIM
CLIPS = [4, 32]  # below and above the longest distance

Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def attend(encoding: PositionEncoding, *, causal: bool, memory: int = 0) -> Attend:
    """Our attention of the last queries over all keys; output (B, H, T, D) and weights."""
    attention = build_attention(
        "vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal
    ).eval()

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k_at = torch.arange(k.size(2)).unsqueeze(0)
        return attention(q, k, v, q_positions=k_at[:, memory:], k_positions=k_at, need_weights=True)

    return run


def check(actual: tuple[Tensor, Tensor], output: Tensor, weights: Tensor) -> None:
    assert weights.std() > 0.02, "weights that are all alike would agree whatever the logits"
    torch.testing.assert_close(actual[1], weights, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actual[0], output, rtol=1e-5, atol=1e-5)


def randomize(*modules: nn.Module) -> None:
    for module in modules:
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.3)


def xl_like(reference: nn.Module, *, causal: bool) -> TransformerXL:
    encoding = build_encoding("xl", num_heads=HEADS, head_dim=DIM, causal=causal)
    assert isinstance(encoding, TransformerXL)
    with torch.no_grad():
        encoding.u.copy_(reference.r_w_bias)
        encoding.v.copy_(reference.r_r_bias)
        encoding.weight.copy_(reference.r.permute(1, 2, 0).reshape(WIDTH, WIDTH))
    return encoding


@torch.no_grad()
@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_xl_is_xlnets_relative_attention(causal, memory):
    """Without segments. XLNet shifts a matrix of all offsets; ``memory`` keys come before the
    first query."""
    config = XLNetConfig(
        vocab_size=4,
        d_model=WIDTH,
        n_head=HEADS,
        n_layer=1,
        d_inner=4,
        attn_type="uni" if causal else "bi",
        clamp_len=-1,
        dropout=0.0,
    )
    model = XLNetModel(config).eval()
    reference = model.layer[0].rel_attn
    randomize(reference)
    queries = LENGTH - memory
    q = torch.randn(BATCH, HEADS, queries, DIM)
    k, v = torch.randn(2, BATCH, HEADS, LENGTH, DIM)
    r = model.relative_positional_encoding(queries, LENGTH, bsz=BATCH)
    hidden = torch.ones(queries, LENGTH).triu(1 + memory) if causal else torch.zeros(1, LENGTH)
    output, weights = reference.rel_attn_core(
        *(x.permute(2, 0, 1, 3) for x in (q, k, v)),
        torch.einsum("ibh,hnd->ibnd", r, reference.r),
        attn_mask=hidden.expand(queries, LENGTH)[..., None, None].expand(-1, -1, BATCH, HEADS),
        output_attentions=True,
    )
    actual = attend(xl_like(reference, causal=causal), causal=causal, memory=memory)(q, k, v)
    check(actual, output.permute(1, 2, 0, 3), weights.permute(2, 3, 0, 1))


def visible(causal: bool) -> Tensor:
    ones = torch.ones(LENGTH, LENGTH)
    return (ones.tril() if causal else ones).expand(BATCH, 1, -1, -1)


def build_deberta(clip: int, causal: bool, **options: str) -> DeBERTa:
    """With the offsets of the release, which the paper has the other way round in p2c."""
    if options["terms"] != "c2p":
        options["p2c_offset"] = "query_minus_key"
    encoding = build_encoding(
        "deberta",
        num_heads=HEADS,
        head_dim=DIM,
        causal=causal,
        max_distance=clip,
        **options,
    )
    assert isinstance(encoding, DeBERTa)
    nn.init.normal_(encoding.table)
    return encoding


def deberta_options(clip: int, terms: str) -> dict[str, object]:
    return {
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "relative_attention": True,
        "max_relative_positions": clip,
        "pos_att_type": ["c2p", "p2c"] if terms == "both" else [terms],
    }


every_form = pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
every_clip = pytest.mark.parametrize("clip", CLIPS)
directions = pytest.mark.parametrize("causal", [True, False])


@torch.no_grad()
@directions
@every_clip
@every_form
def test_deberta_is_deberta_v2_with_shared_projections(causal, clip, terms):
    """Without its logarithmic buckets."""
    config = DebertaV2Config(
        **deberta_options(clip, terms), share_att_key=True, position_buckets=-1
    )
    reference = modeling_deberta_v2.DisentangledSelfAttention(config).eval()
    randomize(reference)
    encoding = build_deberta(clip, causal, terms=terms)
    encoding.bind_projections(reference.query_proj, reference.key_proj)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    output, weights = reference(
        x, visible(causal), output_attentions=True, rel_embeddings=encoding.table
    )
    projections = (reference.query_proj, reference.key_proj, reference.value_proj)
    q, k, v = (p(x).unflatten(-1, (HEADS, DIM)).transpose(1, 2) for p in projections)
    actual = attend(encoding, causal=causal)(q, k, v)
    check(actual, output.unflatten(-1, (HEADS, DIM)).transpose(1, 2), weights)


@torch.no_grad()
@directions
@every_clip
@every_form
def test_own_projections_are_deberta_v1(causal, clip, terms):
    reference = modeling_deberta.DisentangledSelfAttention(
        DebertaConfig(**deberta_options(clip, terms))
    ).eval()
    randomize(reference)
    encoding = build_deberta(clip, causal, terms=terms, projections="own")
    if encoding.key_weight is not None:
        encoding.key_weight.copy_(reference.pos_proj.weight)
    if encoding.query_weight is not None and encoding.query_bias is not None:
        encoding.query_weight.copy_(reference.pos_q_proj.weight)
        encoding.query_bias.copy_(reference.pos_q_proj.bias)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    output, weights = reference(
        x,
        visible(causal),
        output_attentions=True,
        relative_pos=modeling_deberta.build_relative_position(x, x),
        rel_embeddings=encoding.table,
    )
    # Each head's query, key and value lie side by side; queries and values have a bias.
    q, k, v = reference.in_proj(x).unflatten(-1, (HEADS, 3, DIM)).permute(3, 0, 2, 1, 4)
    q, v = (
        x + bias.view(HEADS, 1, DIM) for x, bias in ((q, reference.q_bias), (v, reference.v_bias))
    )
    actual = attend(encoding, causal=causal)(q, k, v)
    check(actual, output.unflatten(-1, (HEADS, DIM)).transpose(1, 2), weights)
