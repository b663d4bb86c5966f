"""The family W_s = P^H Lambda(s) P: unitarity, relativity, and scores from W itself."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.encodings import ENCODINGS, build_encoding
from fairseq_plugins.encodings.unitary import LRPE
from tests.encodings.lrpe_matrices import matrix

DIM = 6
TYPES = [name for name, entry in ENCODINGS.items() if entry.cls is LRPE]


def family() -> list[dict[str, Any]]:
    """Every P x Lambda x fixed or learned x all or half x layout that has a meaning."""
    result: list[dict[str, Any]] = []
    for p, core, learned_p, learned_theta in itertools.product(
        ("identity", "householder", "odd_even", "fft", "dct"),
        ("rotation", "permutation", "complex"),
        (False, True),
        (False, True),
    ):
        if (learned_p and p != "householder") or (learned_theta and core == "permutation"):
            continue
        options = {"p": p, "core": core, "learned_p": learned_p, "learned_theta": learned_theta}
        if core != "rotation":
            result.append(options)
            continue
        for rotated, layout in itertools.product(("all", "half"), ("interleaved", "half_split")):
            result.append({**options, "rotated": rotated, "layout": layout})
    return result


def words(options: dict[str, Any]) -> str:
    return "-".join(key if value is True else str(value) for key, value in options.items() if value)


def build(name: str = "rope", dim: int = DIM, **options: Any) -> LRPE:
    """An LRPE whose draws are fixed; ``rope`` with all options given is any of the family."""
    generator = torch.Generator().manual_seed(7)
    encoding = build_encoding(
        name, num_heads=2, head_dim=dim, max_positions=64, generator=generator, **options
    )
    assert isinstance(encoding, LRPE)
    for parameter in encoding.parameters():
        # Away from the values at the start, as after training.
        with torch.no_grad():
            parameter.mul_(1.1).add_(0.01)
    return encoding


every_member = pytest.mark.parametrize(
    "encoding", [build(**options) for options in family()], ids=map(words, family())
)
every_type = pytest.mark.parametrize("name", TYPES)
positions = st.integers(0, 300)


def relative(encoding: LRPE, offset: int) -> Tensor:
    """W_{offset}, of which negative powers are the adjoints."""
    return matrix(encoding, offset) if offset >= 0 else matrix(encoding, -offset).mH


def scores(encoding: LRPE, q: Tensor, k: Tensor, at: Tensor) -> Tensor:
    """The (B, H, T, T) products of encoded queries and keys."""
    return encoding.transform_query(q, at) @ encoding.transform_key(k, at).mT


def check_algebra(encoding: LRPE, s: int, t: int) -> None:
    identity = torch.eye(encoding.context.head_dim, dtype=torch.complex128)
    w_s, w_t = matrix(encoding, s), matrix(encoding, t)
    # The tables are float32, so cosines and sines are exact to 6e-8.
    torch.testing.assert_close(w_s.mH @ w_s, identity, atol=1e-6, rtol=0)
    torch.testing.assert_close(w_s.mH @ w_t, relative(encoding, t - s), atol=2e-6, rtol=0)


def check_scores(encoding: LRPE, offset: int) -> None:
    """Re(q^H W_{t-s} k) of every pair of positions, from the matrices."""
    dim = encoding.context.head_dim
    q, k = torch.randn(2, 2, 2, 5, dim, dtype=torch.float64)
    at = torch.tensor([[0, 1, 2, 5, 9]]) + offset
    actual = scores(encoding, q, k, at)
    for (i, s), (j, t) in itertools.product(enumerate(at[0].tolist()), repeat=2):
        w = relative(encoding, t - s)
        pairs = torch.einsum("bhd,de,bhe->bh", q[:, :, i].cdouble(), w, k[:, :, j].cdouble())
        torch.testing.assert_close(actual[:, :, i, j], pairs.real, atol=1e-5, rtol=0)


@every_member
@settings(max_examples=5)
@given(s=positions, t=positions)
def test_unitary_and_relative(encoding, s, t):
    check_algebra(encoding, s, t)


@every_type
@settings(max_examples=10)
@given(s=positions, t=positions)
def test_the_named_types_are_unitary_and_relative(name, s, t):
    check_algebra(build(name), s, t)


@every_member
def test_scores_are_those_of_the_matrices(encoding):
    check_scores(encoding, 0)
    check_scores(encoding, 40)


@every_type
@pytest.mark.parametrize("dim", [4, 8, 10])
def test_scores_of_the_named_types_are_those_of_the_matrices(name, dim):
    check_scores(build(name, dim), 3)


@every_member
def test_position_zero_is_the_identity(encoding):
    identity = torch.eye(DIM, dtype=torch.complex128)
    torch.testing.assert_close(matrix(encoding, 0), identity, atol=1e-12, rtol=0)
    q, k = torch.randn(2, 1, 2, 3, DIM, dtype=torch.float64)
    at = torch.zeros(1, 3, dtype=torch.long)
    torch.testing.assert_close(scores(encoding, q, k, at), q @ k.mT)


@every_member
def test_norms_are_kept_and_the_width_is_as_said(encoding):
    q = torch.randn(2, 2, 4, DIM)
    encoded = encoding.transform_query(q, torch.tensor([[0, 3, 17, 60]]))
    is_complex = encoding.basis.is_complex or encoding.core.is_complex
    assert encoded.shape == (2, 2, 4, DIM * (2 if is_complex else 1))
    assert encoding.encoded_dim == encoded.size(-1)
    torch.testing.assert_close(encoded.norm(dim=-1), q.norm(dim=-1), rtol=1e-5, atol=0)
    assert encoding.logit_scale() == pytest.approx(DIM**-0.5)


class EncodedQueries(nn.Module):
    """``transform_query`` as a module's forward, for ``functional_call``."""

    def __init__(self, encoding: LRPE) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, q: Tensor, at: Tensor) -> Tensor:
        return self.encoding.transform_query(q, at)


@every_member
def test_gradients_are_those_of_finite_differences(encoding):
    at, module = torch.tensor([[2, 30]]), EncodedQueries(encoding)
    names = [name for name, _ in module.named_parameters()]
    values = [p.detach().double().requires_grad_() for p in module.parameters()]
    q = torch.randn(1, 1, 2, DIM, dtype=torch.float64, requires_grad=True)

    def transform(q: Tensor, *tensors: Tensor) -> Tensor:
        learned = dict(zip(names, tensors, strict=True))
        result: Tensor = torch.func.functional_call(module, learned, (q, at))
        return result

    assert torch.autograd.gradcheck(transform, (q, *values), atol=1e-4)
