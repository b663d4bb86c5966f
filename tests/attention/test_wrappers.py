"""A layer in what others wrap around it: adapters, transforms, sharding, joined decodings."""

from collections.abc import Callable, Mapping

import pytest
import torch
import torch.distributed as dist
from attention_cases import DIRECTED, Layer, count, one_of_each_mechanism, tokens
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.export import Dim, export

from fairseq_plugins.attention import PositionalMultiheadAttention, build_attention
from fairseq_plugins.encodings import Stochastic, build_encoding


def build(name: str, attention: str = "vanilla", **options) -> PositionalMultiheadAttention:
    return PositionalMultiheadAttention(
        32, 4, position_encoding=name, attention=attention, max_positions=64, **options
    )


@pytest.mark.parametrize("heads", [4, 2])
def test_a_replaced_projection_reaches_the_positions_too(heads):
    layer, x = build("deberta", num_kv_heads=heads), torch.randn(2, 6, 32)
    other = build("deberta", num_kv_heads=heads)
    other.load_state_dict(layer.state_dict())
    layer.q_proj = nn.Sequential(nn.Linear(32, 32))
    with torch.no_grad():
        for key in ("weight", "bias"):
            getattr(other.q_proj, key).copy_(getattr(layer.q_proj[0], key))
    torch.testing.assert_close(layer(x, x, x)[0], other(x, x, x)[0])


def loss_of(layer: Layer) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """A function of weights and of one sample (T, C)."""

    def loss(weights: Mapping[str, Tensor], one: Tensor) -> Tensor:
        result = torch.func.functional_call(layer, weights, (one[None], count(len(one))))
        return result.square().sum()

    return loss


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("name", "attention", "causal", "options"),
    [*((*case, {}) for case in DIRECTED), ("per", "linear", True, {"decay": True})],
)
def test_gradients_of_each_sample_are_those_of_it_alone(name, attention, causal, options):
    layer = Layer(name, attention, causal=causal, encoding_options=options)
    loss, x = loss_of(layer), tokens(2, 5)
    weights = dict(layer.named_parameters())
    detached = {key: weight.detach() for key, weight in weights.items()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness="same")(detached, x)
    loss(weights, x[1]).backward()
    for key, weight in weights.items():
        torch.testing.assert_close(each[key][1], weight.grad, atol=1e-9, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("name", "attention", "causal"), one_of_each_mechanism(DIRECTED))
def test_an_ensemble_gives_what_its_members_give(name, attention, causal):
    layer = Layer(name, attention, causal=causal)
    loss, x = loss_of(layer), tokens(1, 5)[0]
    members = [{key: w.detach() * f for key, w in layer.named_parameters()} for f in (1.0, 1.1)]
    stacked = {key: torch.stack([member[key] for member in members]) for key in members[0]}
    found = torch.func.vmap(loss, in_dims=(0, None), randomness="same")(stacked, x)
    expected = torch.stack([loss(member, x) for member in members])
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("name", "attention", "causal"), DIRECTED)
def test_jacobians_of_a_transform_are_those_of_autograd(name, attention, causal):
    """Of a layer whose own parameters require gradients, as they do where nothing is said."""
    layer, at = Layer(name, attention, causal=causal), count(4)
    layer.eval()

    def call(x: Tensor) -> Tensor:
        torch.manual_seed(2)
        result: Tensor = layer(x, at)
        return result

    x = tokens(1, 4)
    draws = any(isinstance(part, Stochastic) for part in layer.attention.parts)
    expected = torch.autograd.functional.jacobian(call, x)
    found = torch.func.jacrev(call)(x)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    if not draws:
        forward = torch.func.jacfwd(call)(x)
        torch.testing.assert_close(forward, expected, atol=1e-9, rtol=1e-9)


def test_forward_mode_takes_a_single_query_without_gradients():
    layer, at = Layer("rope", "vanilla", causal=True).eval(), count(1)
    x = tokens(1, 1)
    found = torch.func.jvp(lambda x: layer(x, at), (x,), (x,))
    with torch.no_grad():
        alone = torch.func.jvp(lambda x: layer(x, at), (x,), (x,))
    torch.testing.assert_close(alone, found)


@pytest.mark.parametrize(
    ("name", "attention"), [("spe", "linear"), ("spe", "vanilla"), ("spe_conv", "linear")]
)
def test_joined_decodings_keep_their_draws(name, attention, monkeypatch):
    seeds = iter((3, 4))
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", lambda: next(seeds))
    layer, x = build(name, attention, causal=True).eval(), torch.randn(2, 8, 32)
    with torch.no_grad():
        states = [layer.step(row[None, :5])[1] for row in x]
        alone = [layer.step(row[None, 5:], state)[0] for row, state in zip(x, states, strict=True)]
        joined = {key: torch.cat([state[key] for state in states]) for key in states[0]}
        both, after = layer.step(x[:, 5:7], joined)
        last, _ = layer.step(x[:, 7:], after)
    expected = torch.cat(alone)
    torch.testing.assert_close(torch.cat((both, last), 1), expected, atol=1e-5, rtol=1e-5)


def test_one_exported_program_takes_few_rows_and_many():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = build("spe", "linear", causal=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, x, x, need_weights=False)[0]

    with torch.no_grad():
        shapes = {"x": {0: Dim("batch", min=2, max=64)}}
        program = export(Net().eval(), (torch.randn(2, 9, 32),), dynamic_shapes=shapes)
        assert program.module()(torch.randn(20, 9, 32)).shape == (20, 9, 32)


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_fsdp_shards_a_layer_in_one_dtype():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh, half = init_device_mesh("cpu", (1,)), MixedPrecisionPolicy(torch.bfloat16)
        for name in ("lrpe_type2", "lrpe_type6", "yarn_lrpe", "t5", "fire", "tupe"):
            for dtype, policy in ((torch.float32, half), (torch.bfloat16, MixedPrecisionPolicy())):
                layer = build(name).to(dtype)
                fully_shard(layer, mesh=mesh, mp_policy=policy)
                x = torch.randn(2, 6, 32, dtype=dtype)
                layer(x, x, x)[0].float().square().sum().backward()
    finally:
        dist.destroy_process_group()


def test_a_causal_mask_of_pytorchs_encoder_is_a_mask():
    layer = nn.TransformerEncoderLayer(32, 4, 32, dropout=0.0, batch_first=True)
    layer.self_attn = build("alibi")
    causal = nn.TransformerEncoderLayer(32, 4, 32, dropout=0.0, batch_first=True)
    causal.load_state_dict(layer.state_dict(), strict=False)
    causal.self_attn = build("alibi", causal=True)
    causal.self_attn.load_state_dict(layer.self_attn.state_dict())
    x, mask = torch.randn(2, 6, 32), nn.Transformer.generate_square_subsequent_mask(6)
    made = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)(x, mask=mask)
    expected = nn.TransformerEncoder(causal, 1, enable_nested_tensor=False)(x)
    torch.testing.assert_close(made, expected)


def test_a_large_bias_is_rounded_near_0():
    q, k, v = torch.randn(3, 1, 8, 256, 64).bfloat16()
    at = torch.arange(256).unsqueeze(0)
    encoding = build_encoding("sandwich", num_heads=8, head_dim=64, causal=True)
    attention = build_attention("vanilla", encoding, num_heads=8, head_dim=64, causal=True)
    found = attention(q, k, v, q_positions=at, k_positions=at)[0].double()
    logits = q.double() @ k.double().mT / 8 + encoding.attn_bias(at, at)
    hidden = torch.ones(256, 256, dtype=torch.bool).triu(1)
    right = logits.masked_fill(hidden, float("-inf")).softmax(-1) @ v.double()
    assert (found - right).norm() < 4e-3 * right.norm()
