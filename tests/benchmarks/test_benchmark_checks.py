"""What is wrong is refused by name before anything is timed."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as program
from benchmarks import contenders, kernels, table9
from benchmarks.catalog import BENCHMARKS
from benchmarks.contenders import (
    CONTENDERS,
    Contender,
    compile_recurrent,
    draw,
    find_compiler,
    forward_backward,
)
from benchmarks.context import Context
from benchmarks.record import Found
from benchmarks.reference import Mismatch, check_attention, check_contender, check_decoding
from fairseq_plugins.attention import linear as linear_module
from fairseq_plugins.kernels import (
    causal_linear_attention,
    linear_attention,
    linear_cross_entropy,
)

CPU = Context("cpu", Path())


class Half(Context):
    """The dtype of a GPU on a CPU."""

    dtype = torch.bfloat16


HALF = Half("cpu", Path())


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.01 * gradient


def wrong(kernel, part):
    """A kernel whose output or whose gradient is off by a hundredth."""

    def changed(*args, **options):
        result = kernel(*args, **options)
        output = result[0] if isinstance(result, tuple) else result
        output = 1.01 * output if part == "output" else _WrongGradient.apply(output)
        return (output, result[1]) if isinstance(result, tuple) else output

    return changed


@pytest.fixture
def _no_timing(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("something was timed")

    monkeypatch.setattr("benchmarks.runner.interleave", fail)
    monkeypatch.setattr("benchmarks.runner.peak_bytes", fail)


@pytest.mark.usefixtures("_no_timing")
@pytest.mark.parametrize(
    ("part", "named"), [("output", "the output"), ("gradient", "the gradient of")]
)
@pytest.mark.parametrize("name", ["causal", "scaling", "memory", "figure", "lm_step", "table9"])
def test_a_wrong_kernel_is_refused(name, part, named, tmp_path, monkeypatch, capsys):
    bad = wrong(causal_linear_attention, part)
    monkeypatch.setattr(contenders, "causal_linear_attention", bad)
    monkeypatch.setattr(linear_module, "causal_linear_attention", bad)
    monkeypatch.setattr(linear_module, "linear_attention", wrong(linear_attention, part))
    assert program.main(["--quick", "--only", name, "--output", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert f"{name}: refused, nothing was timed: linear" in error and named in error
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.usefixtures("_no_timing")
def test_wrong_decoding_is_refused(tmp_path, monkeypatch, capsys):
    bad = wrong(causal_linear_attention, "output")
    monkeypatch.setattr(linear_module, "causal_linear_attention", bad)
    assert program.main(["--quick", "--only", "decoding", "--output", str(tmp_path)]) == 1
    assert "decoding with linear attention: the output" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_timing")
@pytest.mark.parametrize(("part", "named"), [("output", "loss"), ("gradient", "gradient of the")])
def test_a_wrong_loss_is_refused(part, named, tmp_path, monkeypatch, capsys):
    bad = wrong(linear_cross_entropy, part)
    monkeypatch.setattr("benchmarks.cross_entropy.linear_cross_entropy", bad)
    assert program.main(["--quick", "--only", "cross_entropy", "--output", str(tmp_path)]) == 1
    assert f"nothing was timed: blockwise, 5 tokens: the {named}" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_timing")
def test_table9_script_refuses_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(linear_module, "linear_attention", wrong(linear_attention, "output"))
    assert table9.main(["--quick", "--rows", "rope", "--output", str(tmp_path)]) == 1
    assert "refused, nothing was timed: linear attention" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_nan_is_wrong():
    def attend(q, k, v):
        return contenders.linear(q, k, v) * float("nan")

    with pytest.raises(Mismatch, match="linear, length 19: the output is off by nan"):
        check_contender("linear", attend, 1, 8, CPU)


@pytest.mark.parametrize("name", ["linear", "linear_encoded", "softmax", "masked"])
def test_contenders_are_right_in_half_precision(name):
    attend = CONTENDERS[name].build()
    check_contender(name, attend, 2, 64, HALF)


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
COMPILED = [pytest.param(n, marks=needs_compiler) for n in ("recurrent", "recurrent_native")]


@pytest.mark.parametrize("name", [*(n for n, c in CONTENDERS.items() if not c.peer), *COMPILED])
def test_contenders_are_right(name):
    """The C++ kernels too, whose width is no multiple of their lanes here."""
    attend = CONTENDERS[name].build()
    check_contender(name, attend, 2, 20, CPU)


@pytest.mark.parametrize("context", [CPU, HALF], ids=lambda context: str(context.dtype))
@pytest.mark.parametrize("attention", ["linear", "vanilla"])
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(2), id="first"),
        pytest.param(range(2, 8), id="others", marks=pytest.mark.slow),
    ],
)
def test_attentions_are_right(attention, context, seeds):
    """In the precision of a GPU's benchmarks too, whatever is drawn."""
    for seed in seeds:
        torch.manual_seed(seed)
        for causal in (False, True):
            check_attention(attention, context, causal=causal)
    check_decoding(attention, context)


@pytest.mark.parametrize("name", BENCHMARKS["bias"].sizes["encodings"])
def test_attention_with_each_timed_bias_is_right(name):
    check_attention("vanilla", CPU, encodings=[name], lengths=[19])


def test_without_a_compiler_its_kernel_is_left_out(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no C\\+\\+ compiler"):
        compile_recurrent("-O3", "-DNOT_BUILT_BEFORE")


def test_a_peer_that_is_missing_or_wrong_is_named(monkeypatch, tmp_path):
    def missing():
        raise ModuleNotFoundError("No module named 'a_peer'")

    def broken(q, k, v):
        raise MemoryError("out of registers")

    right = CONTENDERS["linear"].reference
    peers = {
        "missing": Contender("", missing, right, peer=True),
        "wrong": Contender("", lambda: lambda q, k, v: q * k * v, right, peer=True),
        "broken": Contender("", lambda: broken, right, peer=True),
        "right": Contender("", lambda: right, right, peer=True),
    }
    for module in ("kernels", "reference"):
        monkeypatch.setattr(f"benchmarks.{module}.CONTENDERS", peers)
    said, found = [], Found()
    context = Context("cpu", tmp_path, say=said.append)
    functions = kernels.available(list(peers), {"heads": 2, "head_dim": 8}, context, found)
    assert list(functions) == ["right"]
    assert found.skipped["missing"] == "ModuleNotFoundError: No module named 'a_peer'"
    assert found.skipped["wrong"].startswith("Mismatch: wrong, length 19: the output is off by")
    assert found.skipped["broken"] == "MemoryError: out of registers"
    assert len(said) == 3


def test_a_peer_gets_tensors_as_they_lie_in_its_layout():
    seen = []

    def attend(q, k, v):
        seen.extend(t.transpose(1, 2).is_contiguous() for t in (q, k, v))
        return CONTENDERS["linear"].reference(q, k, v)

    contender = Contender("", lambda: attend, attend, peer=True, sequence_first=True)
    run = forward_backward(attend, draw(contender, (2, 3, 16, 8), CPU))
    run()
    assert seen == [True] * 3


@needs_compiler
def test_a_fast_kernel_leaves_small_numbers_to_the_rest_of_the_process():
    """-ffast-math at the linker would have a loaded library flush them to zero everywhere."""
    compile_recurrent("-O3", "-march=native", "-ffast-math")
    smallest = torch.tensor([5e-324], dtype=torch.float64)
    assert (smallest / 1.0).item() == 5e-324
    assert sys.float_info.min / 2 > 0
