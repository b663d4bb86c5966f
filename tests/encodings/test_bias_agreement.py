"""Biases and relative keys against transformers' independent T5, BLOOM and Wav2Vec2-BERT."""

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.bias import t5_buckets

pytest.importorskip("transformers", reason="needs transformers to compare with")
from transformers import T5Config, Wav2Vec2BertConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert

BATCH, DIM, LENGTH = 2, 8, 40
BUCKETS = [(32, 128), (32, 20), (16, 64), (8, 1000), (64, 512), (4, 30)]
HEADS = [1, 2, 3, 6, 8, 12, 16, 20]
both_directions = pytest.mark.parametrize("causal", [True, False])


def t5_attention(num_heads: int, causal: bool, buckets: int, distance: int) -> T5Attention:
    config = T5Config(
        d_model=num_heads * DIM,
        d_kv=DIM,
        num_heads=num_heads,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
        dropout_rate=0.0,
        is_decoder=causal,
    )
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()


def t5_like(reference: T5Attention, causal: bool, buckets: int, distance: int):
    encoding = build_encoding(
        "t5",
        num_heads=reference.n_heads,
        head_dim=DIM,
        causal=causal,
        num_buckets=buckets,
        max_distance=distance,
    )
    with torch.no_grad():
        reference.relative_attention_bias.weight.normal_()
        encoding.weight.copy_(reference.relative_attention_bias.weight)
    return encoding


@both_directions
@pytest.mark.parametrize(("buckets", "distance"), BUCKETS)
def test_t5_buckets(causal, buckets, distance):
    """Every offset up to 3000, and far ones."""
    near = torch.arange(-3000, 3001)
    far = torch.tensor([-(10**6), -100_000, -10_000, 10_000, 100_000, 10**6])
    relative = torch.cat((near, far))
    expected = T5Attention._relative_position_bucket(
        relative, bidirectional=not causal, num_buckets=buckets, max_distance=distance
    )
    actual = t5_buckets(relative, num_buckets=buckets, max_distance=distance, causal=causal)
    assert torch.equal(actual, expected)


@both_directions
@pytest.mark.parametrize("num_heads", HEADS)
def test_t5_bias(num_heads, causal):
    """Whole, and of the last queries of a longer memory."""
    reference = t5_attention(num_heads, causal, 32, 128)
    encoding = t5_like(reference, causal, 32, 128)
    k_at = torch.arange(300).unsqueeze(0)
    for past in (0, 280):
        expected = reference.compute_bias(300 - past, 300, past_seen_tokens=past)
        actual = encoding.attn_bias(k_at[:, past:], k_at)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def split(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, C) -> (B, H, T, D)."""
    return x.unflatten(-1, (num_heads, DIM)).transpose(1, 2)


def future(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


@both_directions
@pytest.mark.parametrize(("buckets", "distance"), BUCKETS)
def test_t5_attention(causal, buckets, distance):
    """T5 drops 1/sqrt(D): its queries are ours times sqrt(D)."""
    reference = t5_attention(3, causal, buckets, distance)
    encoding = t5_like(reference, causal, buckets, distance)
    attention = build_attention("vanilla", encoding, num_heads=3, head_dim=DIM, causal=causal)
    x, at = torch.randn(BATCH, LENGTH, 3 * DIM), torch.arange(LENGTH).unsqueeze(0)
    with torch.no_grad():
        for projection in (reference.q, reference.k, reference.v):
            nn.init.xavier_uniform_(projection.weight)
        reference.o.weight.copy_(torch.eye(3 * DIM))
        mask = None
        if causal:
            mask = torch.zeros(LENGTH, LENGTH).masked_fill(future(LENGTH), float("-inf"))
            mask = mask.expand(BATCH, 1, -1, -1)
        expected = reference(x, mask=mask)[0]
        q, k, v = (split(p(x), 3) for p in (reference.q, reference.k, reference.v))
        actual, _ = attention(q * DIM**0.5, k, v, q_positions=at, k_positions=at)
    actual = actual.transpose(1, 2).flatten(2)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_heads", HEADS)
def test_alibi_is_blooms_up_to_a_constant_per_row(num_heads):
    encoding = build_encoding("alibi", num_heads=num_heads, head_dim=DIM, causal=True)
    mask, at = torch.ones(1, LENGTH, dtype=torch.long), torch.arange(LENGTH).unsqueeze(0)
    theirs = build_alibi_tensor(mask, num_heads, torch.float32).view(1, num_heads, 1, LENGTH)
    difference = theirs - encoding.attn_bias(at, at)
    visible = ~future(LENGTH)
    for s in range(LENGTH):
        row = difference[0, :, s, visible[s]]
        torch.testing.assert_close(row, row[:, :1].expand_as(row), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_heads", HEADS)
@pytest.mark.parametrize("lengths", [[LENGTH, LENGTH], [LENGTH, 25]])
def test_alibi_attention_is_blooms(num_heads, lengths):
    """After softmax the constant is gone; beside padding on the left too."""
    padding = torch.arange(LENGTH) < LENGTH - torch.tensor(lengths).unsqueeze(1)
    q, k, v = torch.randn(3, BATCH, num_heads, LENGTH, DIM)
    bias = build_alibi_tensor((~padding).long(), num_heads, torch.float32)
    logits = q @ k.mT / DIM**0.5 + bias.view(BATCH, num_heads, 1, LENGTH)
    hidden = padding[:, None, None, :] | future(LENGTH)
    weights = logits.masked_fill(hidden, float("-inf")).softmax(-1)
    attention = build_attention(
        "vanilla",
        build_encoding("alibi", num_heads=num_heads, head_dim=DIM, causal=True),
        num_heads=num_heads,
        head_dim=DIM,
        causal=True,
    )
    at = make_positions(padding, LENGTH)
    output, actual = attention(
        q, k, v, q_positions=at, k_positions=at, key_padding_mask=padding, need_weights=True
    )
    seen = ~padding
    rows = weights.transpose(1, 2)[seen]
    torch.testing.assert_close(actual.transpose(1, 2)[seen], rows, rtol=1e-5, atol=1e-5)
    expected = (weights @ v).transpose(1, 2)[seen]
    torch.testing.assert_close(output.transpose(1, 2)[seen], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clip", [3, 64])
@pytest.mark.parametrize("need_weights", [True, False])
def test_shaw_keys_is_wav2vec2_berts_relative_key(clip, need_weights):
    num_heads = 3
    config = Wav2Vec2BertConfig(
        hidden_size=num_heads * DIM,
        num_attention_heads=num_heads,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
        attention_dropout=0.0,
    )
    reference = modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention(config).eval()
    encoding = build_encoding("shaw_keys", num_heads=num_heads, head_dim=DIM, max_distance=clip)
    attention = build_attention(
        "vanilla", encoding, num_heads=num_heads, head_dim=DIM, causal=False
    )
    x, at = torch.randn(BATCH, LENGTH, num_heads * DIM), torch.arange(LENGTH).unsqueeze(0)
    with torch.no_grad():
        reference.linear_out.weight.copy_(torch.eye(num_heads * DIM))
        reference.linear_out.bias.zero_()
        encoding.key_table.copy_(reference.distance_embedding.weight)
        expected, weights = reference(x, output_attentions=True)
        q, k, v = (
            split(p(x), num_heads)
            for p in (reference.linear_q, reference.linear_k, reference.linear_v)
        )
        actual, returned = attention(
            q, k, v, q_positions=at, k_positions=at, need_weights=need_weights
        )
    content = (q @ k.mT / DIM**0.5).softmax(-1)
    assert (weights - content).abs().max() > 0.01, "the relative term must matter"
    torch.testing.assert_close(actual.transpose(1, 2).flatten(2), expected, rtol=1e-5, atol=1e-5)
    if need_weights:
        torch.testing.assert_close(returned, weights, rtol=1e-5, atol=1e-5)
