"""Hierarchical, recursive, product, convolution and complex order, by their properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.encodings import (
    IncompatibleEncodingError,
    PositionFacts,
)
from tests.encodings.absolute import build, count, smallest_distance

# Hierarchical decomposition


@pytest.mark.parametrize("options", [{}, {"table_size": 9}, {"alpha": 0.1}, {"alpha": 0.7}])
def test_n_vectors_make_n_squared_distinct_positions(options):
    encoding = build("hierarchical", **options)
    size = options.get("table_size", 16)
    assert encoding.weight.shape == (size, 8)
    rows = encoding.rows(count(size**2))[0]
    assert smallest_distance(rows) > 1e-3
    alpha = options.get("alpha", 0.4)
    for s in (0, 1, size - 1, size, 5 * size + 3, size**2 - 1):
        u = encoding.weight
        torch.testing.assert_close(rows[s], alpha * u[s // size] + (1 - alpha) * u[s % size])


def test_at_one_half_positions_would_coincide():
    encoding = build("hierarchical")
    encoding.alpha = 0.5
    assert smallest_distance(encoding.rows(count(256))[0]) == 0.0


def test_hierarchical_ends_at_the_square_of_its_table():
    encoding = build("hierarchical", table_size=4)
    assert not PositionFacts.of(encoding).extrapolates
    assert PositionFacts.of(build("hierarchical")).extrapolates
    encoding.rows(torch.tensor([[15]]))
    with pytest.raises(ValueError, match=r"below 16, the square of table_size=4.*reach 16"):
        encoding.embed(torch.zeros(1, 1, 8), torch.tensor([[16]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.5}, r"`alpha` must be between 0 and 1, other than 0\.5, but is 0\.5"),
        ({"alpha": 0.0}, "`alpha`"),
        ({"alpha": 1.0}, "`alpha`"),
        ({"table_size": 3}, r"its square at least max_positions=16, but is 3"),
        ({"table_size": -5}, "`table_size` must be 0, or .* is -5"),
    ],
)
def test_hierarchical_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        build("hierarchical", **options)


# Recursive


def test_each_position_is_a_gru_step_from_the_one_before():
    encoding = build("recursive").double()
    rows = encoding.rows(count(12))[0]
    cell = nn.GRUCell(1, 8, bias=False, dtype=torch.float64)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in encoding.gru.state_dict().items()})
    assert torch.equal(rows[0], encoding.start)
    torch.testing.assert_close(cell(torch.ones(11, 1).double(), rows[:-1]), rows[1:])


@pytest.mark.parametrize("max_positions", [1, 2, 512])
def test_at_first_all_positions_are_distinct(max_positions):
    rows = build("recursive", 32, max_positions=max_positions).rows(count(max_positions))[0]
    assert rows.abs().max() <= 1
    if max_positions > 1:
        assert smallest_distance(rows) > 1e-3


@pytest.mark.parametrize("name", ["recursive", "floater"])
def test_a_recursion_does_not_round_under_autocast(name):
    """Slow features move by less in a step than half precision can tell."""
    encoding = build(name, 32, max_positions=512)
    expected = encoding.rows(count(512))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoding.rows(count(512)), expected)


@pytest.mark.parametrize("name", ["recursive", "floater"])
def test_gradients_of_a_recursion(name):
    encoding = build(name, 4).double()
    at = torch.tensor([[3, 0, 5], [2, 2, 1]])
    parameters = list(encoding.parameters())

    def rows(*values: Tensor) -> Tensor:
        state = dict(zip(dict(encoding.named_parameters()), values, strict=True))
        x = torch.zeros(2, 3, 4, dtype=torch.float64)
        return torch.func.functional_call(encoding, state, (x, at))

    encoding.forward = encoding.embed
    assert torch.autograd.gradcheck(rows, parameters)


# Product


def test_product_multiplies_and_starts_near_the_tokens():
    encoding = build("product", 64, max_positions=400)
    assert encoding.weight.mean().item() == pytest.approx(1.0, abs=0.01)
    assert encoding.weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    x, at = torch.randn(2, 3, 64), torch.tensor([[0, 1, 2], [7, 7, 399]])
    torch.testing.assert_close(encoding.embed(x, at), x * encoding.weight[at])


# Convolution


def by_conv1d(encoding, x: Tensor, left: int, right: int) -> Tensor:
    """x + torch's own depthwise convolution, zeros around."""
    padded = nn.functional.pad(x.mT, (left, right))
    weight = encoding.weight.unsqueeze(1)
    return x + nn.functional.conv1d(padded, weight, groups=x.size(-1)).mT


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(
    ("causal", "kernel_size"), [(True, 2), (True, 3), (True, 6), (False, 3), (False, 7)]
)
def test_it_is_a_depthwise_convolution_with_zeros_around(causal, kernel_size, length):
    encoding = build("cnn", causal=causal, kernel_size=kernel_size).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    around = (kernel_size - 1, 0) if causal else (kernel_size // 2, kernel_size // 2)
    # Wherever the counting starts.
    for start in (0, 5000):
        actual = encoding.embed(x, count(length) + start)
        torch.testing.assert_close(actual, by_conv1d(encoding, x, *around), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@settings(max_examples=30)
@given(st.data())
def test_padding_and_gaps_separate(causal, data):
    """Against a sum written out token by token, over any positions and padding on one side."""
    kernel_size = data.draw(st.sampled_from([3, 5]))
    encoding = build("cnn", 2, causal=causal, kernel_size=kernel_size).double()
    length = data.draw(st.integers(1, 7))
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=length, max_size=length))
    inside = (torch.tensor(gaps).cumsum(0) - gaps[0]).tolist()
    padded, side = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(["left", "right"]))
    around = [0 if side == "left" else inside[-1]] * padded
    at = around + inside if side == "left" else inside + around
    tokens = range(padded, padded + length) if side == "left" else range(length)
    x = torch.randn(1, len(at), 2, dtype=torch.float64)
    x[0, [i for i in range(len(at)) if i not in tokens]] = math.nan
    actual = encoding.embed(x, torch.tensor([at]))[0]
    before = kernel_size - 1 if causal else kernel_size // 2
    for i in tokens:
        expected = x[0, i].clone()
        for tap in range(kernel_size):
            j = i + tap - before
            if j in tokens and at[j] - at[i] == j - i:
                expected += encoding.weight[:, tap] * x[0, j]
        torch.testing.assert_close(actual[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_no_gradient_crosses_into_padding(causal):
    encoding = build("cnn", causal=causal).double()
    at = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 3, 3]])
    padding = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]).bool()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    results = []
    for value in (0.0, 1e30, math.nan):
        x = x.detach().masked_fill(padding.unsqueeze(-1), value).requires_grad_()
        output = encoding.embed(x, at)[~padding]
        inputs = [x, encoding.weight] if value == value else [x]
        gradients = torch.autograd.grad(output.square().sum(), inputs)
        assert not gradients[0][padding].any()
        results.append((output.detach(), gradients[0], *gradients[1:]))
    for result in results[1:]:
        for actual, expected in zip(result, results[0], strict=False):
            assert torch.equal(actual, expected)


def test_the_zeros_tell_the_ends_apart():
    """Of equal tokens, those near an end differ from those within; order is not what tells."""
    x = torch.ones(1, 9, 8)
    both = build("cnn", kernel_size=5).embed(x, count(9))[0]
    assert smallest_distance(both[[0, 1, 4, 7, 8]]) > 0.01
    torch.testing.assert_close(both[2:7], both[2:3].expand(5, -1))
    left = build("cnn", kernel_size=3, causal=True).embed(x, count(9))[0]
    assert smallest_distance(left[:3]) > 0.01
    torch.testing.assert_close(left[2:], left[2:3].expand(7, -1))


def test_a_causal_convolution_needs_its_window_only():
    encoding = build("cnn", causal=True, kernel_size=4)
    assert encoding.embed_window == 4
    x = torch.randn(2, 9, 8)
    whole = encoding.embed(x, count(9))
    for end in range(1, 10):
        last = slice(max(0, end - 4), end)
        alone = encoding.embed(x[:, last], count(9)[:, last])[:, -1]
        torch.testing.assert_close(alone, whole[:, end - 1])


def test_sizes_without_a_middle_or_neighbour_are_refused():
    for causal in (True, False):
        with pytest.raises(ValueError, match="`kernel_size` must be at least 2, but is 1"):
            build("cnn", causal=causal, kernel_size=1)
    with pytest.raises(ValueError, match=r"`kernel_size` must be odd .* is 4"):
        build("cnn", kernel_size=4)


# Complex order


def words(batch: int, length: int) -> Tensor:
    return torch.randint(0, 7, (batch, length))


def test_it_is_a_wave_per_word():
    encoding = build("complex_order", vocab_size=7).double()
    with torch.no_grad():
        encoding.frequencies.normal_()
    x, tokens = torch.randn(2, 5, 8, dtype=torch.float64), words(2, 5)
    at = torch.tensor([[0, 1, 2, 3, 4], [3, 10, 500, 9999, 10000]])
    amplitude, phase = x[..., :4], x[..., 4:]
    angle = encoding.frequencies[tokens] * at.unsqueeze(-1) + phase
    expected = torch.polar(amplitude.abs(), angle) * amplitude.sign()
    actual = encoding.embed(x, at, tokens=tokens)
    both = torch.cat((expected.real, expected.imag), dim=-1)
    torch.testing.assert_close(actual, both, rtol=0, atol=1e-9)


def test_angles_are_right_far_out_in_float32():
    encoding = build("complex_order", vocab_size=7)
    x, tokens, at = torch.randn(1, 3, 8), words(1, 3), torch.tensor([[9998, 9999, 10000]])
    wide = build("complex_order", vocab_size=7).double().embed(x.double(), at, tokens=tokens)
    actual = encoding.embed(x, at, tokens=tokens)
    # The float32 product of 1.0 and 10,000 radians would already be off by 5e-4.
    torch.testing.assert_close(actual.double(), wide, rtol=0, atol=2e-6)


def test_without_frequencies_an_embedding_has_no_position():
    encoding = build("complex_order", vocab_size=7)
    x, tokens = torch.randn(1, 4, 8), words(1, 4)
    near, far = count(4), count(4) * 100 + 7
    moved = encoding.embed(x, far, tokens=tokens) - encoding.embed(x, near, tokens=tokens)
    assert moved.abs().max() > 0.1
    nn.init.zeros_(encoding.frequencies)
    still = encoding.embed(x, far, tokens=tokens)
    assert torch.equal(still, encoding.embed(x, near, tokens=tokens))
    amplitude, phase = x.chunk(2, dim=-1)
    expected = torch.cat((amplitude * phase.cos(), amplitude * phase.sin()), dim=-1)
    torch.testing.assert_close(still, expected)


def test_words_have_their_own_frequencies():
    encoding = build("complex_order", vocab_size=7)
    assert torch.equal(encoding.frequencies[0], encoding.frequencies[6])
    x = torch.randn(1, 1, 8).expand(1, 3, 8)
    tokens, at = torch.tensor([[2, 2, 5]]), torch.full((1, 3), 3)
    result = encoding.embed(x, at, tokens=tokens)
    result[0, 2].sum().backward()
    assert encoding.frequencies.grad[5].all()
    assert not encoding.frequencies.grad[[0, 1, 2, 3, 4, 6]].any()


def test_complex_order_gradients():
    encoding = build("complex_order", 4, vocab_size=7).double()
    tokens, at = words(2, 3), torch.tensor([[0, 5, 40]])
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    frequencies = encoding.frequencies

    def embed(x: Tensor, values: Tensor) -> Tensor:
        return torch.func.functional_call(
            encoding, {"frequencies": values}, (x, at), {"tokens": tokens}
        )

    encoding.forward = encoding.embed
    assert torch.autograd.gradcheck(embed, (x, frequencies))


def test_what_complex_order_needs():
    with pytest.raises(IncompatibleEncodingError, match="give `vocab_size` to `build_encoding`"):
        build("complex_order")
    with pytest.raises(ValueError, match="`embed_dim` must be even, but is 7"):
        build("complex_order", 7, vocab_size=7)
    with pytest.raises(ValueError, match=r"`tokens` must be .* None instead"):
        build("complex_order", vocab_size=7).embed(torch.zeros(1, 2, 8), count(2))
