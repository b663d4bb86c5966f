"""Forward- and backward-awareness (dual positional encoding, Definitions 3.1 and 3.2)."""

import math

import pytest
import torch
from torch import Tensor

from fairseq_plugins.encodings import (
    ENCODINGS,
    IncompatibleEncodingError,
    PositionFacts,
    build_encoding,
    build_model_encodings,
)
from fairseq_plugins.encodings.base import EncodingContext

WIDTH, SESSIONS = 8, range(5, 40)
REVERSE = ("rspe", "aspe", "dpe", "2dspe")
every_reverse = pytest.mark.parametrize("name", REVERSE)
# (forward-aware, backward-aware)
AWARE = {
    "sinusoidal": (True, False),
    "rspe": (False, True),
    "aspe": (False, False),
    "dpe": (True, True),
    "2dspe": (True, False),
}
every_row = pytest.mark.parametrize("name", AWARE)


def build(name: str, width: int = WIDTH, **options):
    return build_encoding(name, num_heads=1, head_dim=width, embed_dim=width, **options)


def vectors(name: str, length: int, width: int = WIDTH) -> Tensor:
    """The vectors of a session: (length, C) float64."""
    x, at = torch.zeros(1, length, width), torch.arange(length).unsqueeze(0)
    lengths = torch.tensor([length])
    return build(name, width).embed(x, at, lengths=lengths)[0].double()


def fit(inputs: Tensor, targets: Tensor) -> float:
    """The largest error of the best linear map from inputs (N, C) to targets (N, E)."""
    solution = torch.linalg.lstsq(inputs, targets, driver="gelsd").solution
    return float((inputs @ solution - targets).abs().max())


@every_row
def test_a_slice_is_shared_by_sessions_of_different_length(name):
    short, long = vectors(name, 11), vectors(name, 37)
    starts = (long[:11] - short).abs().amax(0) < 1e-6
    ends = (long[-11:] - short).abs().amax(0) < 1e-6
    assert (bool(starts.any()), bool(ends.any())) == AWARE[name]
    if name == "dpe":
        half = WIDTH // 2
        assert starts.tolist() == [True] * half + [False] * half
        assert ends.tolist() == [False] * half + [True] * half


@every_row
def test_a_linear_map_finds_the_position_or_the_distance_to_the_end(name):
    """Not even a combination of ASPE's features is a function of one of the two alone."""
    inputs = torch.cat([vectors(name, n) for n in SESSIONS])
    position = torch.cat([torch.arange(n) for n in SESSIONS]).double().unsqueeze(1)
    to_end = torch.cat([torch.arange(n).flip(0) for n in SESSIONS]).double().unsqueeze(1)
    found = []
    for number in (position, to_end):
        error = fit(inputs, torch.cat((number.sin(), number.cos()), dim=1))
        assert error < 1e-5 or error > 0.5
        found.append(error < 1e-5)
    assert tuple(found) == AWARE[name]


@pytest.mark.parametrize("name", ["sinusoidal", "aspe"])
def test_one_formula_for_a_sum_of_positions_except_for_aspe(name):
    """P_{x+y} from the products of P_x and P_y in sessions of all lengths (Eq. 15); for ASPE the
    coefficients depend on the length (Eq. 23)."""
    products, sums = [], []
    for length in SESSIONS:
        session = vectors(name, length, width=2)
        x, y = torch.cartesian_prod(torch.arange(length), torch.arange(length)).unbind(1)
        x, y = x[x + y < length], y[x + y < length]
        products.append(torch.einsum("ni,nj->nij", session[x], session[y]).flatten(1))
        sums.append(session[x + y])
    error = fit(torch.cat(products), torch.cat(sums))
    if name == "aspe":
        assert error > 0.5
    else:
        assert error < 1e-5


@every_row
def test_the_next_position_is_one_linear_map(name):
    """Also for ASPE: with sin(L - X) = sin L cos X - cos L sin X in Eq. 18, which has a plus, its
    features are those of SPE times a complex number of the length."""
    sessions = [vectors(name, n) for n in SESSIONS]
    here, there = (torch.cat([s[cut] for s in sessions]) for cut in (slice(-1), slice(1, None)))
    assert fit(here, there) < 1e-5


def test_aspe_is_spe_times_a_factor_of_the_length():
    def as_complex(name: str) -> Tensor:
        return torch.view_as_complex(vectors(name, 21).unflatten(-1, (-1, 2)).contiguous())

    frequencies = 10000 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    factor = 1 - 1j * torch.exp(20j * frequencies)
    difference = as_complex("aspe") - as_complex("sinusoidal") * factor
    assert difference.abs().max() < 1e-6


def aspe_terms(length: int):
    """x and y of all pairs with x + y in a session, sin and cos of L, and ASPE at x, y, x + y."""
    session = vectors("aspe", length, width=2)
    x, y = torch.cartesian_prod(torch.arange(length), torch.arange(length)).unbind(1)
    x, y = x[x + y < length], y[x + y < length]
    last = length - 1
    return x.double(), y.double(), math.sin(last), math.cos(last), session[x], session[y], x + y


def test_the_sign_in_eq_18_is_a_minus():
    """Eq. 18 prints cos(X) + sin(L - X) as (1 + sin L) cos X + cos L sin X."""
    x, _, sine, cosine, at_x, _, _ = aspe_terms(14)
    even, odd = at_x.unbind(1)
    torch.testing.assert_close(even, (1 + sine) * x.sin() + cosine * x.cos(), atol=1e-6, rtol=0)
    torch.testing.assert_close(odd, (1 + sine) * x.cos() - cosine * x.sin(), atol=1e-6, rtol=0)
    assert (odd - ((1 + sine) * x.cos() + cosine * x.sin())).abs().max() > 0.1


def test_the_products_of_eq_19_to_22():
    """With the minus of Eq. 18, and sin X cos Y for sin X sin Y at the end of Eq. 20."""
    x, y, sine, cosine, at_x, at_y, _ = aspe_terms(14)
    a, sx, cx, sy, cy = 1 + sine, x.sin(), x.cos(), y.sin(), y.cos()
    (ex, ox), (ey, oy) = at_x.unbind(1), at_y.unbind(1)

    def products(c: float, last_of_20: Tensor) -> list[Tensor]:
        """Of P_x,2i and P_y,2i+1 and so on; c is the sign that Eq. 18 gives cos(L)."""
        d = cosine
        return [
            a * a * sx * cy + a * c * sx * sy + a * d * cx * cy + c * d * cx * sy,
            a * a * sy * cx + a * d * cx * cy + a * c * sx * sy + c * d * last_of_20,
            a * a * cx * cy + a * c * cx * sy + a * c * sx * cy + c * c * sx * sy,
            a * a * sx * sy + a * d * sx * cy + a * d * cx * sy + d * d * cx * cy,
        ]

    found = [ex * oy, ox * ey, ox * oy, ex * ey]

    def errors(formulas: list[Tensor]) -> list[float]:
        pairs = zip(formulas, found, strict=True)
        return [float((formula - product).abs().max()) for formula, product in pairs]

    assert max(errors(products(-cosine, sx * cy))) < 1e-5
    wrong = errors(products(cosine, sx * sy))
    assert min(wrong[:3]) > 0.1  # as printed
    assert wrong[3] < 1e-5
    # What Eq. 20 expands is not its last term even with the printed sign.
    expanded = (a * cx + cosine * sx) * (a * sy + cosine * cy)
    assert (products(cosine, sx * cy)[1] - expanded).abs().max() < 1e-12
    assert (products(cosine, sx * sy)[1] - expanded).abs().max() > 0.1


def test_eq_23_gives_the_encoding_of_a_sum():
    """P_{x+y} = (A - cos(L) D / (1 + sin L)) / 2 and (D + cos(L) A / (1 + sin L)) / 2."""
    length = 14
    _, _, sine, cosine, at_x, at_y, together = aspe_terms(length)
    (ex, ox), (ey, oy) = at_x.unbind(1), at_y.unbind(1)
    a, c, d = ex * oy + ox * ey, ox * oy + ex * ey, ox * oy - ex * ey
    expected = vectors("aspe", length, width=2)[together]
    slope = cosine / (1 + sine)
    corrected = torch.stack(((a - slope * d) / 2, (d + slope * a) / 2), dim=1)
    torch.testing.assert_close(corrected, expected, atol=1e-5, rtol=0)
    # As printed, with its "s" read as a 2.
    printed = torch.stack(
        (
            (a - cosine * c) / (2 * (1 + cosine**2)) + cosine * d / (2 * sine * (1 + sine)),
            d / (2 * sine) + (cosine * c - a) / (2 * (1 + sine) * (cosine - 1)),
        ),
        dim=1,
    )
    assert ((printed - expected).abs().amax(0) > 0.1).all()


def test_rspe_is_the_sinusoid_read_backwards():
    for length in (1, 2, 20):
        assert torch.equal(vectors("rspe", length), vectors("sinusoidal", length).flip(0))


def test_closed_forms():
    length, s = 13, 4
    end = length - 1 - s
    for i in range(WIDTH // 2):
        whole = 10000 ** (-2 * i / WIDTH)
        expected = {
            "rspe": (math.sin(end * whole), math.cos(end * whole)),
            # Eq. 17
            "aspe": (
                math.sin(s * whole) + math.cos(end * whole),
                math.cos(s * whole) + math.sin(end * whole),
            ),
        }
        for name, pair in expected.items():
            row = vectors(name, length)[s, 2 * i : 2 * i + 2].tolist()
            assert row == pytest.approx(pair, abs=1e-6)
    for i in range(WIDTH // 4):
        half = 10000 ** (-4 * i / WIDTH)
        # The second half starts at C/2; 2DSPE is Eq. 24.
        for name, second in (("dpe", end), ("2dspe", length)):
            row = vectors(name, length)[s].tolist()
            for offset, number in ((0, s), (WIDTH // 2, second)):
                at = 2 * i + offset
                pair = (math.sin(number * half), math.cos(number * half))
                assert row[at : at + 2] == pytest.approx(pair, abs=1e-6)


def test_2dspe_tells_the_lengths_apart_and_nothing_else_in_its_second_half():
    rows = [vectors("2dspe", n)[:, WIDTH // 2 :] for n in SESSIONS]
    for session in rows:
        assert torch.equal(session, session[:1].expand_as(session))
    firsts = torch.stack([session[0] for session in rows])
    assert (torch.cdist(firsts, firsts) + torch.eye(len(rows))).min() > 1e-3


def test_aspe_without_the_exchange_would_be_symmetric():
    """Why Eq. 16 exchanges sine and cosine."""
    plain = vectors("sinusoidal", 20) + vectors("rspe", 20)
    assert torch.equal(plain, plain.flip(0))
    session = vectors("aspe", 20)
    assert (session - session.flip(0)).abs().max() > 0.1


@every_reverse
def test_a_batch_of_lengths_and_positions(name):
    """Padding on either side, and one row of positions for all."""
    x = torch.randn(3, 6, WIDTH)
    lengths = torch.tensor([6, 2, 4])
    encoding = build(name)
    right = encoding.embed(x, torch.arange(6).unsqueeze(0), lengths=lengths)
    left_at = (torch.arange(6) - (6 - lengths).unsqueeze(1)).clamp(min=0)
    left = encoding.embed(x, left_at, lengths=lengths)
    assert right.isfinite().all()
    assert left.isfinite().all()
    for b, n in enumerate(lengths.tolist()):
        own = vectors(name, n).float()
        torch.testing.assert_close(right[b, :n], x[b, :n] + own)
        torch.testing.assert_close(left[b, 6 - n :], x[b, 6 - n :] + own)


@every_reverse
def test_an_empty_sentence_is_no_error(name):
    x = torch.zeros(2, 3, WIDTH)
    result = build(name).embed(x, torch.arange(3).unsqueeze(0), lengths=torch.tensor([0, 3]))
    assert result.isfinite().all()


@every_reverse
def test_far_beyond_the_table(name):
    encoding = build(name, max_positions=16)
    at, lengths = torch.tensor([[0, 9999]]), torch.tensor([10001])
    actual = encoding.embed(torch.zeros(1, 2, WIDTH, dtype=torch.float64), at, lengths=lengths)
    # The fastest wave of whichever half holds the distance to the end or the length.
    number = {"rspe": (10000, 1), "dpe": (10000, 1), "2dspe": (10001, 10001)}.get(name)
    if number is not None:
        start = 0 if name == "rspe" else WIDTH // 2
        expected = torch.tensor(number, dtype=torch.float64).sin()
        torch.testing.assert_close(actual[0, :, start], expected, atol=1e-6, rtol=0)
    assert actual.abs().max() <= 2


@every_reverse
def test_lengths_are_needed(name):
    x = torch.zeros(1, 2, WIDTH)
    with pytest.raises(ValueError, match=f"`lengths` must be .*{name} .* is None"):
        build(name).embed(x, torch.tensor([[0, 1]]))


@every_reverse
def test_a_causal_stack_is_refused_when_it_is_built(name):
    for whole in (name, f"{name}+rope"):
        context = EncodingContext(1, 8, 8, causal=True)
        with pytest.raises(IncompatibleEncodingError, match=f"causal model .*'{name}'.*length"):
            build_model_encodings(whole, 2, context, {})
        bidirectional = build_model_encodings(whole, 2, EncodingContext(1, 8, 8), {})
        assert PositionFacts.of(bidirectional.inputs[0]).needs_lengths


@pytest.mark.parametrize(("name", "multiple"), [("rspe", 2), ("dpe", 4), ("2dspe", 4)])
def test_widths_that_do_not_divide_are_refused(name, multiple):
    wrong = 3 * multiple // 2
    expected = f"`embed_dim` must be a multiple of {multiple}, .* {wrong} instead"
    with pytest.raises(ValueError, match=expected):
        build(name, wrong)
    build(name, multiple)


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "shaw", "lrpe_type1"])
def test_relative_encodings_have_no_vector_of_a_position(name):
    """So they are neither forward- nor backward-aware (Corollary 3.5)."""
    assert ENCODINGS[name].facts.is_relative
    assert "embed" not in ENCODINGS[name].hooks
