"""The Triton kernel without a GPU: its numbers in the interpreter, its code by cross-compilation.

`make test-triton` installs triton and runs these.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_plugins.kernels import causal_linear_attention
from fairseq_plugins.kernels.backend import VARIABLE
from tests.kernels.triton_cases import (
    NORMALIZERS,
    SMALL,
    TOLERANCES,
    check_attention,
    check_product,
)

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]
# What one program may have; compute capability 8.6 and 8.9 have less than others.
SHARED = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024}
# The most bytes that a thread keeps outside registers, in half precision, up to 64 features and
# wider: the gradients of keys and values, the largest kernel. Smaller chunks would lose wgmma.
SPILLED = {80: (64, 450), 86: (64, 450), 90: (100, 450)}


@pytest.fixture(scope="module")
def interpreter():
    """Interpreted kernels, with bfloat16 as the hardware has it.

    Triton's interpreter keeps bfloat16 as raw bits: it rounds by truncation, and multiplies the
    bits of matrices as if they were integers.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs TRITON_INTERPRET=1 from the start; use `make test-triton`")
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def rounding_cast(self, source, target):
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            bits = torch.from_numpy(source.data.copy()).bfloat16().view(torch.uint16)
            return TensorHandle(bits.numpy(), tl.bfloat16)
        return cast(self, source, target)

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        values = torch.from_numpy(handle.data.copy()).view(torch.bfloat16).float()
        return TensorHandle(values.numpy(), tl.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "cast_impl", rounding_cast)
        patch.setattr(
            InterpreterBuilder,
            "create_dot",
            lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest),
        )
        yield


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_the_product_is_the_naive_one(shape, dtype):
    check_product(shape, dtype, "cpu")


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("shape", SMALL[::2], ids=str)
def test_an_attention_is_the_naive_one(shape, normalizer, dtype, monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    check_attention(shape, normalizer, dtype, "cpu", sequence_first=True)


@pytest.mark.usefixtures("interpreter")
def test_keys_that_are_all_zero_give_zero_gradients_and_not_nan(monkeypatch):
    """As padding in front of a sequence does."""
    monkeypatch.setenv(VARIABLE, "triton")
    q, v = torch.randn(1, 1, 40, 8, requires_grad=True), torch.randn(1, 1, 40, 8)
    k = torch.randn(1, 1, 40, 8)
    k[:, :, :20] = 0
    k.requires_grad_()
    output = causal_linear_attention(q, k, v, min_cosine=0.2)
    assert isinstance(output, torch.Tensor)
    assert not output[:, :, :20].any()
    grad_q, grad_k = torch.autograd.grad(output[:, :, 20:].sum(), (q, k))
    assert torch.isfinite(grad_k).all() and not grad_q[:, :, :20].any()


@pytest.mark.usefixtures("interpreter")
def test_sums_past_the_range_of_float16_stay_finite(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    ones = torch.full((1, 1, 4200, 8), 4.0, dtype=torch.float16)
    assert torch.equal(causal_linear_attention(ones, ones, ones), ones)


def run_without_interpreter(folder, module, *words, **variables):
    """What a program of this folder prints."""
    environment = {n: value for n, value in os.environ.items() if n != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{module}", *words],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pass_is_one_graph_for_the_compiler(tmp_path):
    said = run_without_interpreter(tmp_path, "trace_triton", **{VARIABLE: "triton"})
    assert said.count("one graph") == 8


@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", SHARED)
def test_every_kernel_compiles_to_matrix_instructions(architecture, tmp_path):
    """And fits the multiprocessor. Sums over segments and rows have nothing to multiply."""
    rows = json.loads(run_without_interpreter(tmp_path, "compile_triton", str(architecture)))
    products = {"segment_sums", "outputs", "query_gradients", "key_value_gradients"}
    assert {row["kernel"] for row in rows} == products | {"scan_slots", "row_gradients"}
    for row in rows:
        assert row["shared"] <= SHARED[architecture], row
        if row["dtype"] != "float32" and row["spilled"] is not None:
            assert row["spilled"] <= SPILLED[architecture][row["case"][0] > 64], row
        assert row["mma"] + row["wgmma"] > 0 or row["kernel"] not in products, row
        if architecture == 90 and row["dtype"] == "bfloat16":
            assert row["wgmma"] > 0 or row["kernel"] not in products, row
