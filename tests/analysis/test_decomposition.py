"""P and Lambda from the matrices of the encodings themselves (LRPE, Theorems C.1 and C.2)."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.analysis.decomposition import decompose
from fairseq_plugins.analysis.decomposition_picture import draw, relative_matrices
from fairseq_plugins.encodings import build_encoding

TYPES = [f"lrpe_type{number}" for number in range(1, 9)]


def family_of(name: str):
    """W_s of the first head, from what its hook makes of unit vectors."""
    torch.manual_seed(1)
    encoding = build_encoding(name, num_heads=2, head_dim=8)
    basis = torch.eye(8, dtype=torch.float64).expand(1, 2, -1, -1)

    def transformed(position: int) -> Tensor:
        found = encoding.transform_key(basis, torch.full((1, 8), position))[0, 0]
        found = found.detach()
        return torch.complex(*found.chunk(2, -1)) if name == "lrpe_type8" else found

    return lambda position: transformed(0).conj() @ transformed(position).mT


@pytest.mark.parametrize("name", [*TYPES, "rope"])
def test_each_type_has_a_basis_and_angles(name):
    family = family_of(name)
    found = decompose(family)
    unit = torch.eye(8, dtype=found.basis.dtype)
    torch.testing.assert_close(found.basis @ found.basis.mH, unit)
    for position in (0, 1, 5, 100):
        expected = family(position).to(found.basis.dtype)
        torch.testing.assert_close(found.relative_matrix(position), expected, atol=1e-6, rtol=0)
    is_complex = name == "lrpe_type8"
    assert found.basis.is_complex() is is_complex
    assert len(found.angles) * (1 if is_complex else 2) + len(found.signs) == 8


def test_the_picture_has_the_three_matrices():
    figure = draw("lrpe_type2")
    shown = [torch.from_numpy(axis.images[0].get_array().data) for axis in figure.axes[:3]]
    whole, basis, turned = shown
    torch.testing.assert_close(basis.mT @ turned @ basis, whole)
    torch.testing.assert_close(whole, relative_matrices("lrpe_type2")(5), atol=1e-6, rtol=0)


def test_rope_gives_its_angles():
    found = decompose(family_of("rope"))
    expected = 10000 ** (-torch.arange(0, 8, 2).double() / 8)
    torch.testing.assert_close(
        found.angles.abs().sort().values, expected.sort().values, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_matrix_is_enough(is_complex):
    torch.manual_seed(2)
    dtype = torch.complex128 if is_complex else torch.float64
    matrix, _ = torch.linalg.qr(torch.randn(7, 7, dtype=dtype))
    found = decompose(matrix)
    torch.testing.assert_close(found.relative_matrix(3), matrix @ matrix @ matrix)
    torch.testing.assert_close(found.relative_matrix(-2), (matrix @ matrix).mH)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (2 * torch.eye(3), "not unitary"),
        (torch.ones(2, 3), "must be"),
        (lambda s: torch.eye(2).flip(0) if s else -torch.eye(2), "W_0"),
        (lambda s: torch.eye(2).flip(0) if s else torch.eye(2), "W_2"),
    ],
)
def test_other_families_have_none(family, message):
    with pytest.raises(ValueError, match=message):
        decompose(family)


@pytest.mark.parametrize("name", ["alibi", "base", "shaw", "none"])
def test_scores_that_are_no_w_of_queries_and_keys_are_refused(name):
    """A bias has the identity as its W, which is not what it does."""
    with pytest.raises(ValueError, match=f"{name} must act on queries and keys alone"):
        relative_matrices(name)


def test_queries_and_keys_may_differ():
    """xPos scales queries up and keys down, so that W_s falls with s alone."""
    encoding = build_encoding("xpos", num_heads=1, head_dim=8, causal=True)
    unit = torch.eye(8, dtype=torch.float64).expand(1, 1, -1, -1)
    ahead, by = (torch.full((1, 8), at) for at in (7, 4))
    expected = encoding.transform_query(unit, ahead) @ encoding.transform_key(unit, ahead - by).mT
    family = relative_matrices("xpos", 8)
    torch.testing.assert_close(family(-4), expected[0, 0], atol=1e-6, rtol=0)
