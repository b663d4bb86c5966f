"""The Triton kernel on a GPU (`make test-gpu`); what the interpreter cannot show."""

import pytest
import torch

from fairseq_plugins.kernels import causal_linear_attention
from fairseq_plugins.kernels.backend import CAPABILITY, VARIABLE, choose_backend
from tests.kernels.triton_cases import (
    NORMALIZERS,
    SMALL,
    TOLERANCES,
    Shape,
    check_attention,
    check_product,
    draw,
)

pytestmark = pytest.mark.gpu(capability=CAPABILITY)

LARGE = (Shape(2, 8, 2048, 64, 64), Shape(1, 4, 3001, 128, 64), Shape(1, 2, 1000, 128, 128))


@pytest.fixture(autouse=True)
def _triton(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv(VARIABLE, "triton")


def test_the_gpu_is_chosen_unasked(monkeypatch):
    monkeypatch.delenv(VARIABLE)
    assert choose_backend(torch.device("cuda", 0), torch.bfloat16) == "triton"


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SMALL + LARGE, ids=str)
def test_the_product_is_the_naive_one(shape, dtype):
    check_product(shape, dtype, "cuda")


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_results_repeat_bit_for_bit(dtype):
    def run():
        torch.manual_seed(1)
        q, k, v, _ = draw(LARGE[0], dtype, "cuda")
        output = causal_linear_attention(q.abs(), k.abs(), v)
        assert isinstance(output, torch.Tensor)
        return [output, *torch.autograd.grad(output.square().sum(), (q, k, v))]

    for first, second in zip(run(), run(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("shape", SMALL + LARGE, ids=str)
@pytest.mark.parametrize("sequence_first", [False, True])
def test_an_attention_is_the_naive_one(shape, normalizer, dtype, sequence_first):
    check_attention(shape, normalizer, dtype, "cuda", sequence_first=sequence_first)


def test_sums_past_the_range_of_float16_stay_finite():
    ones = torch.full((1, 1, 4096, 8), 4.0, dtype=torch.float16, device="cuda")
    assert torch.equal(causal_linear_attention(ones, ones, ones), ones)


def test_memory_grows_with_the_length_alone():
    peaks = []
    for length in (4096, 8192):
        q, k, v, _ = draw(Shape(1, 4, length, 64, 64), torch.bfloat16, "cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = causal_linear_attention(q, k, v)
        assert isinstance(output, torch.Tensor)
        output.sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del output, q, k, v
    assert peaks[1] <= 2.2 * peaks[0]
