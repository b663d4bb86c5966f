"""Chunks in PyTorch on a GPU (`make test-gpu`), what GPUs without the Triton kernel have."""

import pytest
import torch

from fairseq_plugins.kernels.backend import VARIABLE
from tests.kernels.triton_cases import NORMALIZERS, SMALL, Shape, check_attention

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("shape", [*SMALL, Shape(2, 8, 2048, 64, 64)], ids=str)
def test_an_attention_is_the_naive_one(monkeypatch, shape, normalizer, dtype):
    monkeypatch.setenv(VARIABLE, "torch")
    check_attention(shape, normalizer, dtype, "cuda")
