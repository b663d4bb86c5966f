"""The work of a call is that of its formula, and peaks are those of a machine."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from benchmarks.contenders import CONTENDERS, draw, forward_backward
from benchmarks.context import Context
from benchmarks.cross_entropy import LOSSES
from benchmarks.limits import Work, count_work, measure_peaks, rates
from benchmarks.runner import Benchmark

CPU = Context("cpu", Path())
FLOAT = 4


def test_a_product():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    whole = FLOAT * (15 + 35 + 21)
    assert count_work(lambda: a @ b) == Work(2 * 3 * 5 * 7, whole)
    out = torch.empty(3, 7)
    assert count_work(lambda: torch.mm(a, b, out=out)) == Work(2 * 3 * 5 * 7, whole)
    assert count_work(lambda: out.addmm_(a, b)) == Work(2 * 3 * 5 * 7, whole + FLOAT * 21)


def test_what_lives_and_dies_within_a_call_is_not_moved():
    a = torch.ones(4, 4)
    assert count_work(lambda: ((a @ a) @ a).sum()) == Work(4 * 64, FLOAT * (16 + 1))


def test_views_of_one_tensor_are_one_tensor():
    a = torch.ones(8, 4)
    work = count_work(lambda: [a[:4] @ a[4:], a[:4] @ a[4:], a.T @ a])
    assert work == Work(2 * (64 + 64 + 128), FLOAT * (32 + 3 * 16))


def test_of_a_table_the_rows_that_are_picked():
    table, rows, weight = torch.ones(1000, 4), torch.tensor([1, 2]), torch.ones(4, 4)
    work = count_work(lambda: F.embedding(rows, table) @ weight)
    assert work == Work(2 * 2 * 16, 2 * 8 + FLOAT * (8 + 16 + 8))


def test_what_backward_needs_is_read_again():
    """A layer and its square: the input, the weight and the output are kept."""
    x, weight = torch.ones(2, 3), torch.ones(3, 5, requires_grad=True)

    def run():
        return torch.autograd.grad((x @ weight).square().sum(), weight)

    moved = {"x": 2 * 6, "weight": 15, "output": 2 * 10, "gradient": 15}
    assert count_work(run).flop == 2 * 2 * 30
    assert count_work(run).bytes == pytest.approx(FLOAT * sum(moved.values()), abs=3 * FLOAT)


@pytest.mark.parametrize("length", [96, 256])
def test_softmax_attention(length):
    """Both fused and written out; the fused one leaves out later keys."""
    heads, dim = 2, 32
    work = _work("softmax", (1, heads, length, dim))
    assert work.flop == 7 * 2 * dim * heads * length * (length + 1) // 2
    assert work.bytes == FLOAT * heads * length * (12 * dim + 2)
    masked = _work("masked", (1, heads, length, dim))
    assert masked.flop == 6 * 2 * dim * heads * length**2
    assert masked.bytes > work.bytes + 2 * FLOAT * heads * length**2


@pytest.mark.parametrize("name", ["linear", "linear_encoded"])
@pytest.mark.parametrize("length", [512, 768])
def test_our_kernel(name, length):
    """14 (C + D) D per token and head in chunks of 64, forward and backward, and a few sums.

    Kept beside twelve tensors of q's size are the state before the first key and denominators.
    """
    heads, dim, chunk = 2, 64, 64
    work = _work(name, (1, heads, length, dim))
    assert work.flop == pytest.approx(14 * (chunk + dim) * dim * heads * length, rel=0.02)
    moved = heads * (12 * length * dim + 2 * length + 2 * dim**2)
    assert work.bytes == pytest.approx(FLOAT * moved, rel=0.01)


def test_a_kernel_that_is_no_operator_has_a_formula():
    shape = (1, 2, 512, 32)
    work = _work("recurrent", shape)
    assert work == CONTENDERS["recurrent"].work(shape) and work.source == "by a formula"
    linear = _work("linear", shape)
    assert work.bytes == pytest.approx(linear.bytes, rel=0.03)
    try:
        run = _pass("recurrent", shape)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert count_work(run) == Work(source="no product among PyTorch's operators")


def _pass(name, shape):
    contender = CONTENDERS[name]
    run = forward_backward(contender.build(), draw(contender, shape, CPU))
    run()
    return run


def _work(name, shape):
    formula = CONTENDERS[name].work
    return formula(shape) if formula else count_work(_pass(name, shape))


@pytest.mark.parametrize("name", LOSSES)
def test_an_output_layer(name):
    """Three products of one size, and one without gradients."""
    tokens, width, words = 256, 16, 300
    features = torch.randn(tokens, width, requires_grad=True)
    weight = torch.randn(words, width, requires_grad=True)
    target = torch.randint(words, (tokens,))

    def train():
        features.grad = weight.grad = None
        LOSSES[name](features, weight, target).backward()

    train()
    assert count_work(train).flop == 3 * 2 * tokens * width * words
    with torch.no_grad():
        assert count_work(lambda: LOSSES[name](features, weight, target)).flop == (
            2 * tokens * width * words
        )


def test_a_call_that_fails_says_why():
    def fail():
        raise ValueError("no")

    assert count_work(fail) == Work(source="ValueError: no")


def test_peaks():
    """Repeatable within what a busy machine does to the best of a few, and above plain Python."""
    sizes = {"gemm_size": 256, "copy_bytes": 2**22, "repetitions": 9}
    found = [measure_peaks(sizes, CPU) for _ in range(2)]
    for rate in ("gflop_per_s", "gb_per_s"):
        (first,), (second,) = (one[rate] for one in found)
        assert first > 0.1 and 0.2 < first / second < 5


def test_rates_are_of_the_higher_peak():
    peaks = {"gflop_per_s": [50.0, 100.0], "gb_per_s": [10.0, 8.0]}
    assert rates(Work(20 * 10**9, 10**9), 0.5, peaks) == {
        "gflop_per_s": 40.0,
        "of_peak_gemm": 0.4,
        "gb_per_s": 2.0,
        "of_peak_copy": 0.2,
    }
    assert set(rates(Work(source="unknown"), 0.5, peaks).values()) == {None}


def test_a_benchmark_between_its_peaks(monkeypatch):
    about = {"gemm_size": 1, "gemm_dtype": "float32"}
    peaks = [
        {**about, "gflop_per_s": [100.0], "gb_per_s": [10.0]},
        {**about, "gflop_per_s": [80.0], "gb_per_s": [12.0]},
    ]
    monkeypatch.setattr("benchmarks.runner.measure_peaks", lambda *_: peaks.pop(0))

    def cases(settings, context, found):
        found.medians = {"a@1": 1.0, "b@1": 1.0, "c@1": 1.0}
        found.work = {"a@1": Work(10**10, 1), "b@1": Work(10**10, 1), "c@1": Work()}
        return iter(())

    benchmark = Benchmark("", cases, {}, shares=("a", "c"))
    found = benchmark.measure({"peaks": {"gemm_size": 1}}, CPU)
    assert found.peaks["gflop_per_s"] == [100.0, 80.0] and found.peaks["gb_per_s"] == [10.0, 12.0]
    assert found.peaks["gemm_size"] == 1 and found.peaks["gemm_dtype"] == "float32"
    assert found.ratios == {"a/peak_gemm@1": 0.1}
    assert found.rates["b@1"]["of_peak_gemm"] == 0.1
