"""RoPE and its stretched forms against RoFormer and GPT-NeoX of Hugging Face transformers."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import build_encoding

pytest.importorskip("transformers", reason="the independent implementations")
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.roformer import modeling_roformer as roformer

HEADS, DIM, LENGTH, BATCH = 4, 16, 40, 2
TRAINED = 16  # positions of the model that is stretched
WIDTH = HEADS * DIM
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}


def build(name: str, **options):
    return build_encoding(name, num_heads=HEADS, head_dim=DIM, max_positions=64, **options)


def attend(encoding, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Output (B, T, C) and weights (B, H, T, T) of a bidirectional attention."""
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    at = torch.arange(q.size(2)).unsqueeze(0)
    output, weights = attention(q, k, v, q_positions=at, k_positions=at, need_weights=True)
    return output.transpose(1, 2).flatten(2), weights


def roformer_angles(length: int) -> Tensor:
    """RoFormer's sines and cosines: (1, 1, T, D)."""
    table = roformer.RoFormerSinusoidalPositionalEmbedding(length, DIM)
    return table.create_weight()[None, None]


@pytest.mark.parametrize("first", [0, 9_980])
def test_rope_turns_as_roformer(first):
    q, k, v = torch.randn(3, BATCH, HEADS, 20, DIM)
    angles = roformer_angles(first + 20)[:, :, first:]
    turn = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings
    at = torch.arange(first, first + 20).unsqueeze(0)
    rope = build("rope")
    ours = rope.transform_query(q, at), rope.transform_key(k, at)
    for actual, expected in zip(ours, turn(angles, q, k), strict=True):
        torch.testing.assert_close(actual, expected, **TOLERANCE)
    values = build("rope_values", output="as_is").transform_value(v, at)
    torch.testing.assert_close(values, turn(angles, q, k, v)[2], **TOLERANCE)


@pytest.mark.parametrize("rotary_value", [False, True])
def test_attention_is_roformers(rotary_value):
    """With the same projections: weights and output; values are turned where it turns them."""
    config = roformer.RoFormerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_probs_dropout_prob=0.0,
        rotary_value=rotary_value,
    )
    layer, x = roformer.RoFormerSelfAttention(config), torch.randn(BATCH, LENGTH, WIDTH)
    expected, expected_weights = layer(x, sinusoidal_pos=roformer_angles(LENGTH))
    qkv = (
        projection(x).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
        for projection in (layer.query, layer.key, layer.value)
    )
    encoding = build("rope_values", output="as_is") if rotary_value else build("rope")
    output, weights = attend(encoding, *qkv)
    torch.testing.assert_close(weights, expected_weights, **TOLERANCE)
    torch.testing.assert_close(output, expected, **TOLERANCE)


def neox_config(**rope) -> neox.GPTNeoXConfig:
    """All features turned; ``rope`` says which scaling."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, **rope}
    return neox.GPTNeoXConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        max_position_embeddings=TRAINED,
        rope_parameters=rope,
        attn_implementation="eager",
    )


def neox_turned(config: neox.GPTNeoXConfig, x: Tensor, at: Tensor) -> Tensor:
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(x, at)
    return neox.apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_half_split_rope_turns_as_gpt_neox(base):
    x, at = torch.randn(BATCH, HEADS, LENGTH, DIM), torch.arange(LENGTH).unsqueeze(0)
    rope = build("rope", layout="half_split", base=base)
    expected = neox_turned(neox_config(rope_theta=base), x, at)
    torch.testing.assert_close(rope.transform_query(x, at), expected, **TOLERANCE)


def test_attention_is_gpt_neoxs():
    config = neox_config()
    layer, x = neox.GPTNeoXAttention(config), torch.randn(BATCH, LENGTH, WIDTH)
    cos_sin = neox.GPTNeoXRotaryEmbedding(config)(x, torch.arange(LENGTH).unsqueeze(0))
    expected, expected_weights = layer(x, None, position_embeddings=cos_sin)
    heads = layer.query_key_value(x).unflatten(-1, (HEADS, 3, DIM)).permute(3, 0, 2, 1, 4)
    output, weights = attend(build("rope", layout="half_split"), *heads)
    torch.testing.assert_close(weights, expected_weights, **TOLERANCE)
    torch.testing.assert_close(layer.dense(output), expected, **TOLERANCE)


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_interpolation_is_linear_scaling(factor):
    x, at = torch.randn(BATCH, HEADS, LENGTH, DIM), torch.arange(LENGTH).unsqueeze(0)
    encoding = build("rope_interpolated", factor=factor, layout="half_split")
    expected = neox_turned(neox_config(rope_type="linear", factor=factor), x, at)
    torch.testing.assert_close(encoding.transform_query(x, at), expected, **TOLERANCE)


@pytest.mark.parametrize("stretch", [2, 4])
@pytest.mark.parametrize("dynamic_factor", [1.0, 3.0])
def test_ntk_is_dynamic_scaling_at_one_length(stretch, dynamic_factor):
    """Dynamic scaling follows the length n of each sequence: its factor is f n / L - (f - 1)."""
    length = stretch * TRAINED
    factor = dynamic_factor * stretch - (dynamic_factor - 1)
    x, at = torch.randn(BATCH, HEADS, length, DIM), torch.arange(length).unsqueeze(0)
    encoding = build("rope_ntk", factor=factor, layout="half_split")
    expected = neox_turned(neox_config(rope_type="dynamic", factor=dynamic_factor), x, at)
    torch.testing.assert_close(encoding.transform_query(x, at), expected, **TOLERANCE)
