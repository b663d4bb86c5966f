"""The matrices of LRPE written out, to which its encodings are compared."""

import torch
from torch import Tensor

from fairseq_plugins.encodings.cores import Core, Permutation, Phase, Rotation
from fairseq_plugins.encodings.unitary import LRPE


def matrix(encoding: LRPE, position: int) -> Tensor:
    """W_s = P^H Lambda(s) P of one position: (D, D) complex128."""
    dim = encoding.context.head_dim
    basis = encoding.basis.change(torch.eye(dim, dtype=torch.float64), encoding.v).double().mT
    if encoding.basis.is_complex:
        basis = torch.complex(basis[:dim], basis[dim:])
    basis = basis.to(torch.complex128)
    core = _core_matrix(encoding.core, position, dim, getattr(encoding, encoding.core.tensor))
    return basis.mH @ core @ basis


def _core_matrix(core: Core, position: int, dim: int, tensor: Tensor | None) -> Tensor:
    """Lambda(s): (D, D) complex128."""
    result = torch.eye(dim, dtype=torch.complex128)
    if isinstance(core, Permutation):
        for _ in range(position):
            result = result[tensor]
        return result
    assert isinstance(core, Rotation | Phase)
    cos, sin = (x.flatten().double() for x in core.cos_sin(torch.tensor([[position]]), tensor))
    if isinstance(core, Phase):
        return torch.diag(torch.complex(cos, sin))
    is_split = core.layout == "half_split"
    for pair in range(core.count):
        i = pair if is_split else 2 * pair
        j = i + (core.count if is_split else 1)
        result[i, i] = result[j, j] = cos[pair]
        result[i, j], result[j, i] = -sin[pair], sin[pair]
    return result
