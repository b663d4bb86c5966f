"""YaRN: the paper's definition, the release's as transformers has it, and its two limits."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import build_encoding
from fairseq_plugins.encodings.unitary import LRPE
from tests.encodings.lrpe_matrices import matrix

HEADS, DIM, TRAINED = 2, 32, 256


def build(name: str = "yarn", *, causal: bool = True, **options) -> LRPE:
    generator = torch.Generator().manual_seed(5)
    encoding = build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        max_positions=TRAINED,
        causal=causal,
        generator=generator,
        **options,
    )
    assert isinstance(encoding, LRPE)
    return encoding


def angles_of(encoding: LRPE) -> list[float]:
    """What each pair of an identity x rotation turns by per position."""
    turned = matrix(encoding, 1).real
    pairs = range(0, DIM, 2)
    return [math.atan2(float(turned[j + 1, j]), float(turned[j, j])) for j in pairs]


def by_the_paper(factor: float, length: int, slow: float, fast: float) -> list[float]:
    """Definition 2 of the paper in loops: Eq. 17 to 20."""
    angles = []
    for j in range(DIM // 2):
        angle = 10000.0 ** (-2 * j / DIM)
        turns = length / (2 * math.pi / angle)
        if turns < slow:
            gamma = 0.0
        elif turns > fast:
            gamma = 1.0
        else:
            gamma = (turns - slow) / (fast - slow)
        angles.append((1 - gamma) * angle / factor + gamma * angle)
    return angles


@pytest.mark.parametrize("factor", [1.0, 2.0, 16.0])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (0.2, 3.0)])
@pytest.mark.parametrize("length", [0, 4096])
def test_angles_are_the_papers(factor, slow, fast, length):
    encoding = build(factor=factor, slow=slow, fast=fast, trained_length=length)
    expected = by_the_paper(factor, length or TRAINED, slow, fast)
    assert angles_of(encoding) == pytest.approx(expected, rel=1e-5, abs=2e-7)


@pytest.mark.parametrize("p", ["identity", "householder", "odd_even", "dct"])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("ramp", ["turns", "pairs"])
def test_a_factor_of_one_is_what_was_trained(p, learned, ramp):
    options = {"p": p, "learned_theta": learned}
    plain, stretched = build("rope", **options), build(**options, factor=1.0, ramp=ramp)
    assert stretched.logit_scale() == plain.logit_scale()
    q, at = torch.randn(1, HEADS, 5, DIM), torch.tensor([[0, 1, 7, 255, 4000]])
    expected = plain.transform_query(q, at)
    torch.testing.assert_close(stretched.transform_query(q, at), expected, atol=1e-6, rtol=0)


def test_fast_pairs_stay_and_slow_ones_are_interpolated():
    plain, stretched = angles_of(build("rope")), angles_of(build(factor=8.0, slow=1.0, fast=8.0))
    turns = [TRAINED * angle / (2 * math.pi) for angle in plain]
    kinds = set()
    for n, before, after in zip(turns, plain, stretched, strict=True):
        share = 1.0 if n >= 8 else 1 / 8 if n <= 1 else None
        kinds.add(share)
        if share is not None:
            assert after == pytest.approx(share * before, rel=1e-5, abs=2e-7)
        else:
            assert before / 8 < after < before
    assert kinds == {1.0, 1 / 8, None}


@pytest.mark.parametrize("name", ["rope", "lrpe_type2"])
def test_a_trained_model_goes_on_with_its_own_angles(name):
    """The state dict is that of the encoding it was trained with; angles may be anywhere."""
    plain = build(name, learned_theta=True)
    with torch.no_grad():
        plain.theta.mul_(torch.linspace(0.2, -1.7, DIM // 2))
    stretched = build("yarn" if name == "rope" else "yarn_lrpe", learned_theta=True, factor=4)
    stretched.load_state_dict(plain.state_dict())
    assert torch.equal(stretched.theta, plain.theta)
    turns = plain.theta.detach().double().abs() * TRAINED / (2 * math.pi)
    gamma = ((turns - 1) / 31).clamp(0, 1)
    with torch.no_grad():
        plain.theta.mul_((1 - gamma) / 4 + gamma)
    q, at = torch.randn(1, HEADS, 5, DIM), torch.tensor([[0, 1, 7, 100, 255]])
    expected = plain.transform_query(q, at)
    torch.testing.assert_close(stretched.transform_query(q, at), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("ramp", ["turns", "pairs"])
def test_gradients_reach_learned_angles(ramp):
    encoding = build("yarn_lrpe", ramp=ramp).double()
    q, at = torch.randn(1, HEADS, 3, DIM, dtype=torch.float64), torch.tensor([[0, 3, 9]])

    def turned(theta: Tensor) -> Tensor:
        return torch.func.functional_call(encoding, {"theta": theta}, (), strict=False)

    encoding.forward = lambda: encoding.transform_query(q, at)
    assert torch.autograd.gradcheck(turned, [encoding.theta.detach().requires_grad_()], atol=1e-4)


@pytest.mark.parametrize("factor", [1.0, 4.0, 32.0])
def test_the_temperature_multiplies_the_logits(factor):
    """Against rope with the same angles: every logit is (0.1 ln f + 1)^2 as large."""
    q, k, v = torch.randn(3, 2, HEADS, 9, DIM)
    at = torch.arange(9).unsqueeze(0)
    weights = []
    for temperature in ("paper", "none"):
        encoding = build(factor=factor, temperature=temperature, causal=False)
        attention = build_attention(
            "vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False
        )
        weights.append(attention(q, k, v, q_positions=at, k_positions=at, need_weights=True)[1])
    warm, plain = (torch.log(w) for w in weights)
    inverse = (0.1 * math.log(factor) + 1) ** 2
    expected = inverse * (plain - plain.mean(-1, keepdim=True))
    torch.testing.assert_close(warm - warm.mean(-1, keepdim=True), expected, atol=1e-4, rtol=1e-4)


def test_linear_attention_has_no_temperature():
    q, k, v = torch.randn(3, 2, HEADS, 9, DIM)
    at = torch.arange(9).unsqueeze(0)
    outputs = []
    for temperature in ("paper", "none"):
        encoding = build(factor=8.0, temperature=temperature)
        attention = build_attention("linear", encoding, num_heads=HEADS, head_dim=DIM, causal=True)
        outputs.append(attention(q, k, v, q_positions=at, k_positions=at)[0])
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize(("factor", "base"), [(2.0, 10000.0), (4.0, 500.0), (16.0, 10000.0)])
@pytest.mark.parametrize("length", [64, 256, 2048])
def test_the_ramp_over_pairs_is_that_of_transformers(factor, base, length):
    """Which multiplies queries and keys by the root of our factor on the logits."""
    neox = pytest.importorskip(
        "transformers.models.gpt_neox.modeling_gpt_neox", reason="the independent implementation"
    )
    config = neox.GPTNeoXConfig(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=int(length * factor),
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": base,
            "partial_rotary_factor": 1.0,
            "factor": factor,
            "original_max_position_embeddings": length,
        },
    )
    x, at = torch.randn(2, HEADS, 300, DIM), torch.arange(300).unsqueeze(0)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(x, at)
    expected = neox.apply_rotary_pos_emb(x, x, cos, sin)[0]
    encoding = build(
        factor=factor, base=base, trained_length=length, ramp="pairs", layout="half_split"
    )
    root = (encoding.logit_scale() * DIM**0.5) ** 0.5
    actual = root * encoding.transform_query(x, at)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0.5}, "`factor` must be finite and at least 1, but is 0.5"),
        ({"factor": math.inf}, "`factor` must be finite and at least 1, but is inf"),
        ({"trained_length": -1}, "`trained_length` must be positive, .*, but is -1"),
        ({"slow": 0.0}, "`slow` must be positive and below `fast`, but they are 0.0 and 32.0"),
        ({"slow": 40}, "`slow` must be positive and below `fast`, but they are 40.0 and 32.0"),
        ({"learned_p": True}, "`learned_p=true` needs `p=householder`"),
    ],
)
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
