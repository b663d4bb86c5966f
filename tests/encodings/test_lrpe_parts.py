"""The parts of LRPE against independent closed forms; its precision, growth and refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.encodings import ENCODINGS, build_encoding
from fairseq_plugins.encodings.bases import Cosine, Fourier, Householder, OddEven
from fairseq_plugins.encodings.cores import Permutation, Phase, Rotation
from fairseq_plugins.encodings.frequencies import theta
from fairseq_plugins.encodings.permutations import PermutationPowers, odd_even, power_table
from fairseq_plugins.encodings.tables import Constant, Formula
from tests.encodings.lrpe_matrices import matrix

HALVES = (torch.bfloat16, torch.float16)


def build(name: str, dim: int = 8, *, max_positions: int = 64, causal: bool = False, **options):
    generator = torch.Generator().manual_seed(3)
    return build_encoding(
        name,
        num_heads=2,
        head_dim=dim,
        max_positions=max_positions,
        causal=causal,
        generator=generator,
        **options,
    )


def turned(x: np.ndarray, positions: list[int], base: float = 10000.0) -> np.ndarray:
    """RoPE as complex numbers: pair t of the features times exp(i s base^(-2t/D)), long double."""
    pairs = x.astype(np.longdouble)
    dim = x.shape[-1]
    frequencies = np.longdouble(base) ** (-2 * np.arange(dim // 2, dtype=np.longdouble) / dim)
    angles = np.asarray(positions, dtype=np.longdouble)[:, None] * frequencies
    real, imag = pairs[..., ::2], pairs[..., 1::2]
    result = np.empty_like(pairs)
    result[..., ::2] = real * np.cos(angles) - imag * np.sin(angles)
    result[..., 1::2] = real * np.sin(angles) + imag * np.cos(angles)
    return result


@pytest.mark.parametrize("dim", [2, 8, 64])
@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_rope_is_multiplication_by_a_phase(dim, base):
    at = [0, 1, 2, 63, 511, 1000, 9999]
    x = torch.randn(1, 2, len(at), dim)
    actual = build("rope", dim, base=base).transform_query(x, torch.tensor([at]))
    expected = turned(x.numpy(), at, base)
    # Float32 inputs and tables; a table made in float32 would be off by 1e-3 at 9999.
    np.testing.assert_allclose(actual.numpy(), expected.astype(float), atol=2e-6)


@pytest.mark.parametrize("learned", [True, False])
def test_learned_angles_start_at_the_fixed_ones_and_are_exact_far_out(learned):
    encoding = build("rope", 16, learned_theta=learned)
    x = torch.randn(1, 1, 2, 16)
    actual = encoding.transform_key(x, torch.tensor([[5, 10000]]))
    expected = turned(x.numpy(), [5, 10000]).astype(float)
    # A learned theta is rounded to float32, 3e-8 of up to 10,000 radians.
    np.testing.assert_allclose(actual.detach().numpy(), expected, atol=1e-3 if learned else 2e-6)
    if learned:
        turns = torch.tensor([5.0, 10000.0], dtype=torch.float64)[:, None] * encoding.theta.double()
        first = x[..., ::2] * turns.cos() - x[..., 1::2] * turns.sin()
        np.testing.assert_allclose(actual[..., ::2].detach(), first.detach(), atol=2e-6)


@torch.no_grad()
def test_kept_angles_are_those_of_the_same_positions_and_angles_alone():
    core = build("lrpe_identity", 8).core
    positions, theta = torch.arange(5)[None], torch.rand(4)

    def agrees(theta: Tensor) -> bool:
        kept, fresh = (core.cos_sin(at, theta) for at in (positions, positions.clone()))
        return all(map(torch.equal, kept, fresh))

    assert core.cos_sin(positions, theta) is core.cos_sin(positions, theta)
    theta.data.mul_(2)  # which is no new version of theta
    assert agrees(theta) and agrees(3 * theta) and agrees(theta.double())
    positions.add_(7)
    assert agrees(theta)
    several = torch.stack((theta, 3 * theta))
    cos, _ = torch.func.vmap(lambda one: core.cos_sin(positions, one))(several)
    torch.testing.assert_close(cos[1], core.cos_sin(positions, 3 * theta)[0])
    with torch.enable_grad():
        assert core.cos_sin(positions, theta.requires_grad_())[0].requires_grad


def test_half_split_pairs_the_halves():
    x = torch.randn(1, 2, 4, 8)
    at = torch.tensor([[0, 3, 10, 50]])
    woven = torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)
    expected = build("rope").transform_query(woven, at)
    actual = build("rope", layout="half_split").transform_query(x, at)
    torch.testing.assert_close(torch.stack(actual.chunk(2, dim=-1), dim=-1).flatten(-2), expected)


def test_type_5_with_all_features_is_half_split_rope():
    q, k = torch.randn(2, 1, 2, 6, 8, dtype=torch.float64)
    at = torch.arange(6).unsqueeze(0) * 7
    type5, rope = build("lrpe_type5", rotated="all"), build("rope", layout="half_split")
    actual = type5.transform_query(q, at) @ type5.transform_key(k, at).mT
    expected = rope.transform_query(q, at) @ rope.transform_key(k, at).mT
    torch.testing.assert_close(actual, expected)


def test_identity_times_rotation_is_rope():
    x, at = torch.randn(1, 2, 5, 8), torch.arange(5).unsqueeze(0)
    plain = build("lrpe_type6", p="identity", learned_theta=False)
    assert torch.equal(plain.transform_query(x, at), build("rope").transform_query(x, at))


@pytest.mark.parametrize(
    ("name", "basis", "core", "learned"),
    [
        ("lrpe_type1", Householder, Rotation, set()),
        ("lrpe_type2", Householder, Rotation, {"theta"}),
        ("lrpe_type3", Householder, Rotation, {"theta", "v"}),
        ("lrpe_type4", Householder, Permutation, set()),
        ("lrpe_type5", OddEven, Rotation, set()),
        ("lrpe_type6", OddEven, Rotation, {"theta"}),
        ("lrpe_type7", OddEven, Permutation, set()),
        ("lrpe_type8", Fourier, Phase, set()),
    ],
)
def test_the_eight_types_are_those_of_the_paper(name, basis, core, learned):
    encoding = build(name)
    assert (type(encoding.basis), type(encoding.core)) == (basis, core)
    assert {n for n, _ in encoding.named_parameters()} == learned
    if core is Rotation:
        half = name in ("lrpe_type1", "lrpe_type5")
        assert encoding.core.count == (2 if half else 4)


def test_the_state_dict_has_what_was_drawn_or_learned_under_its_name():
    names = {name: list(build(name).state_dict()) for name in ENCODINGS if name.startswith("lrpe")}
    assert names == {
        "lrpe_identity": ["theta"],
        "lrpe_dct": ["theta"],
        "lrpe_type1": ["v"],
        "lrpe_type2": ["theta", "v"],
        "lrpe_type3": ["v", "theta"],
        "lrpe_type4": ["v", "permutation"],
        "lrpe_type5": [],
        "lrpe_type6": ["theta"],
        "lrpe_type7": ["permutation"],
        "lrpe_type8": [],
    }


@pytest.mark.parametrize("p", ["identity", "householder", "odd_even", "fft", "dct"])
@pytest.mark.parametrize("core", ["rotation", "permutation", "complex"])
def test_every_pair_is_one_part_after_the_other(p, core):
    """The step in which a pair does both is Lambda(s) of P x."""
    encoding, x = build("rope", p=p, core=core), torch.randn(2, 2, 5, 8)
    at = torch.tensor([[0, 1, 7, 30, 200]])
    tensor = getattr(encoding, encoding.core.tensor)
    alone = build("rope", core=core).core
    changed = encoding.basis.change(x, encoding.v)
    if changed.size(-1) > 8 and core == "rotation":
        halves = (alone.advance(half, at, tensor) for half in changed.chunk(2, dim=-1))
        expected = torch.cat(tuple(halves), dim=-1)
    else:
        expected = alone.advance(changed, at, tensor)
    torch.testing.assert_close(encoding.transform_query(x, at), expected)


def test_half_leaves_the_last_features_alone():
    x = torch.randn(1, 2, 3, 8)
    encoded = build("lrpe_type1", p="identity").transform_query(x, torch.tensor([[1, 2, 3]]))
    assert torch.equal(encoded[..., 4:], x[..., 4:])
    # theta_t = 10000^(-2t/e) with e the number of rotated features, not D.
    np.testing.assert_allclose(encoded[..., :4], turned(x[..., :4].numpy(), [1, 2, 3]), atol=1e-6)


def test_householder_is_the_reflection_of_v():
    encoding = build("lrpe_type4")
    v = encoding.v.double()
    matrix = torch.eye(8, dtype=torch.float64) - 2 * torch.outer(v, v) / (v @ v)
    x = torch.randn(3, 8)
    torch.testing.assert_close(encoding.change_basis(x), (x.double() @ matrix).float())
    torch.testing.assert_close(encoding.change_basis(encoding.change_basis(x)), x)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_householder_stays_orthogonal_for_any_length_of_v(scale):
    encoding = build("lrpe_type3")
    with torch.no_grad():
        encoding.v.mul_(scale)
    x = torch.randn(3, 8)
    torch.testing.assert_close(encoding.change_basis(x).norm(dim=-1), x.norm(dim=-1))


def test_odd_even_by_hand():
    assert odd_even(6).tolist() == [0, 3, 1, 4, 2, 5]
    assert odd_even(7).tolist() == [0, 4, 1, 5, 2, 6, 3]


@given(st.integers(1, 100))
def test_odd_even_is_a_permutation(dim):
    index = odd_even(dim).tolist()
    assert sorted(index) == list(range(dim))
    assert all(index[2 * k] == k for k in range(math.ceil(dim / 2)))
    assert all(index[2 * k + 1] == math.ceil(dim / 2) + k for k in range(dim // 2))


@pytest.mark.parametrize("dim", [5, 8])
def test_type_8_is_the_unitary_transform_and_a_phase_per_frequency(dim):
    x, s = torch.randn(dim, dtype=torch.float64), 13
    n = np.arange(dim)
    fourier = np.exp(-2j * np.pi * np.outer(n, n) / dim) / np.sqrt(dim)
    alpha = 10000.0 ** (-2 * n / dim)
    expected = np.exp(1j * s * alpha) * (fourier @ x.numpy())
    actual = build("lrpe_type8", dim).transform_query(x.view(1, 1, 1, dim), torch.tensor([[s]]))
    both = np.concatenate([expected.real, expected.imag])
    np.testing.assert_allclose(actual.flatten().numpy(), both, atol=1e-6)


def test_permutation_powers_are_repeated_gathers():
    encoding = build("lrpe_type4", p="identity")
    x = expected = torch.randn(1, 2, 1, 8)
    for s in range(100):
        assert torch.equal(encoding.transform_query(x, torch.tensor([[s]])), expected)
        expected = expected[..., encoding.permutation]
    table = power_table(encoding.permutation, 1)
    assert table.tolist() == [list(range(8))]


@pytest.mark.parametrize("first", [None, Constant(Formula(odd_even, (5,)))])
@pytest.mark.parametrize("dim", [5, 10])
def test_gradient_of_a_permutation_is_the_gathers_own(dim, first):
    """Of two halves too, that are permuted alike."""
    powers, permutation = PermutationPowers(first), torch.randperm(5)
    at = torch.tensor([[0, 3, 1], [2, 2, 4]])
    x = torch.randn(2, 2, 3, dim, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: powers(t, permutation, at), x)
    assert torch.autograd.gradgradcheck(lambda t: powers(t, permutation, at), x)


@pytest.mark.parametrize("name", ["lrpe_type4", "lrpe_type7"])
def test_another_permutation_is_followed_once_it_is_loaded(name):
    at, x = torch.arange(9).unsqueeze(0), torch.randn(1, 2, 9, 8)
    trained = build_encoding(name, num_heads=2, head_dim=8)
    fresh = build_encoding(name, num_heads=2, head_dim=8)
    before = fresh.transform_query(x, at)
    torch.nn.Sequential(fresh).load_state_dict(torch.nn.Sequential(trained).state_dict())
    assert torch.equal(fresh.transform_query(x, at), trained.transform_query(x, at))
    assert not torch.equal(fresh.transform_query(x, at), before)


@pytest.mark.parametrize("theta_type", ["a", "b", "c"])
def test_frequencies_as_defined(theta_type):
    e, length = 6, 100
    expected = {
        "a": [10000 ** (-2 * t / e) for t in range(3)],
        "b": [math.pi / 2 / length / (e / 2) * i for i in (1, 2, 3)],
        "c": [math.pi / 2 / length / i for i in (1, 2, 3)],
    }[theta_type]
    torch.testing.assert_close(
        theta(theta_type, e, 10000.0, length), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("theta_type", ["b", "c"])
def test_length_dependent_frequencies_are_refused_where_the_length_is_unknown(theta_type):
    assert build("lrpe_type1", theta_type=theta_type).core.count == 2
    with pytest.raises(ValueError, match=f"`theta_type={theta_type}` depends on the .*length"):
        build("lrpe_type1", theta_type=theta_type, causal=True)


@pytest.mark.parametrize(
    ("name", "dim", "options", "message"),
    [
        ("rope", 7, {}, "`head_dim` must be even .*but is 7"),
        ("lrpe_type2", 5, {}, "`head_dim` must be even .*but is 5"),
        ("lrpe_type1", 2, {}, "`head_dim` must be at least 3 .*but is 2"),
        ("rope", 8, {"learned_p": True}, "`learned_p=true` .*'identity'"),
        ("lrpe_type4", 8, {"learned_theta": True}, "`learned_theta=true` .*permutation"),
        ("lrpe_type1", 8, {"theta_type": "c", "base": 500.0}, "`base=500` needs `theta_type=a`"),
        ("lrpe_type8", 8, {"theta_type": "b"}, "`theta_type=b` needs `core=rotation`.*complex"),
        ("rope", 8, {"base": 1.0}, "`base` must .*above 1, but is 1.0"),
        ("rope", 8, {"base": "nan"}, "`base` must be finite .*but is nan"),
        ("rope", 8, {"base": "inf"}, "`base` must be finite .*but is inf"),
    ],
)
def test_what_has_no_meaning_is_refused(name, dim, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, dim, **options)


@pytest.mark.parametrize("name", ["lrpe_type1", "lrpe_type4", "lrpe_type7", "lrpe_type8"])
def test_an_odd_head_dim_is_fine_where_no_pair_is_cut(name):
    x, at = torch.randn(1, 2, 4, 7), torch.arange(4).unsqueeze(0)
    encoded = build(name, 7).transform_query(x, at)
    torch.testing.assert_close(encoded.norm(dim=-1), x.norm(dim=-1))


def by_table_size(name: str, x: Tensor, at: Tensor) -> list[Tensor]:
    return [build(name, max_positions=n).transform_query(x, at) for n in (4, 16384)]


@pytest.mark.parametrize("name", ["rope", "lrpe_type2", "lrpe_type7", "lrpe_type8"])
def test_tables_grow_to_any_position(name):
    at, x = torch.tensor([[0, 5, 4, 1023, 10000]]), torch.randn(1, 2, 5, 8)
    small, large = by_table_size(name, x, at)
    assert torch.equal(small, large)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["rope", "lrpe_type2", "lrpe_type3", "lrpe_type8", "lrpe_type4"])
def test_half_precision_knows_positions_beyond_256(name, dtype):
    encoding, at = build(name).to(dtype), torch.tensor([[0, 257, 4099, 9999]])
    x = torch.randn(1, 2, 4, 8).to(dtype)
    half = encoding.transform_query(x, at)
    wide = encoding.float().transform_query(x.float(), at)
    assert half.dtype == dtype
    # Two roundings of features of order one, P's and Lambda's; positions add nothing.
    torch.testing.assert_close(half.float(), wide, atol=4 * torch.finfo(dtype).eps, rtol=0.02)


@pytest.mark.parametrize("name", ["lrpe_type4", "lrpe_type7", "lrpe_type8"])
@pytest.mark.parametrize("options", [{"layout": "half_split"}, {"rotated": "quarter"}])
def test_options_of_a_rotation_are_refused_without_one(name, options):
    with pytest.raises(ValueError, match=r"`(layout|rotated)=\w+` needs `core=rotation`, not"):
        build(name, **options)


def test_a_permutation_has_no_base_of_angles():
    with pytest.raises(ValueError, match=r"`base=500` needs a core with angles"):
        build("lrpe_type4", base=500)


@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_the_cosine_transform_is_its_sum_and_undone_by_its_transpose(dim):
    x = np.random.default_rng(0).standard_normal((3, dim))
    steps = np.arange(dim)
    waves = [np.cos(np.pi * k * (2 * steps + 1) / (2 * dim)) for k in steps]
    expected = np.stack([(x * wave).sum(-1) for wave in waves], -1)
    expected *= np.sqrt(np.where(steps == 0, 1, 2) / dim)
    basis = Cosine(dim)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        changed = basis.change(torch.from_numpy(x).to(dtype), None)
        np.testing.assert_allclose(changed.numpy(), expected, atol=tolerance)
        np.testing.assert_allclose(basis.undo(changed, None).numpy(), x, atol=tolerance)


def test_lrpe_dct_turns_by_ropes_angles_in_other_planes():
    rope, dct = build("rope", learned_theta=True), build("lrpe_dct")
    assert torch.equal(rope.theta, dct.theta)
    plain, mixed = matrix(rope, 5).real, matrix(dct, 5).real
    assert (plain - mixed).abs().max() > 0.1
    eigenvalues = [torch.linalg.eigvals(m).angle().sort().values for m in (plain, mixed)]
    torch.testing.assert_close(*eigenvalues)
