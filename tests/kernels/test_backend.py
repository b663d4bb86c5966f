"""Which implementation is chosen, and what is said where the one forced cannot run."""

import pytest
import torch

from fairseq_plugins.kernels import backend, causal_linear_attention
from fairseq_plugins.kernels.backend import FLEX, VARIABLE, choose_backend, uses_flex

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def machine(monkeypatch):
    """A machine with a GPU of some capability, with or without triton."""

    def make(*, capability=(9, 0), triton=True):
        monkeypatch.setattr(backend, "_has_triton", lambda: triton)
        monkeypatch.setattr(backend, "_capability", lambda device: capability)
        monkeypatch.setattr(torch.version, "hip", None)

    return make


def test_a_gpu_gets_triton_where_it_can_run_it(machine):
    machine()
    assert choose_backend(GPU, torch.bfloat16) == "triton"
    assert choose_backend(GPU, torch.float64) == "torch"
    assert choose_backend(CPU, torch.bfloat16) == "torch"
    machine(capability=(7, 0))
    assert choose_backend(GPU, torch.float16) == "torch"
    machine(triton=False)
    assert choose_backend(GPU, torch.float32) == "torch"


def test_flex_attention_is_chosen_and_needs_compute_capability_8(machine, monkeypatch):
    machine(capability=(8, 0))
    assert not uses_flex(GPU, torch.float16)
    monkeypatch.setenv(FLEX, "1")
    machine(capability=(7, 0))  # a V100
    assert not uses_flex(GPU, torch.float16)
    machine(capability=(8, 0))
    assert uses_flex(GPU, torch.float16) and uses_flex(GPU, torch.float32)
    assert not uses_flex(GPU, torch.float64) and not uses_flex(CPU, torch.float32)
    machine(triton=False)
    assert not uses_flex(GPU, torch.float16)


def test_the_interpreter_is_never_chosen_unasked(machine, monkeypatch):
    machine()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_backend(CPU, torch.float32) != "triton"
    monkeypatch.setenv(VARIABLE, "triton")
    assert choose_backend(CPU, torch.float32) == "triton"


@pytest.mark.parametrize("word", ["torch", "naive"])
def test_a_word_forces_its_backend_everywhere(machine, monkeypatch, word):
    machine()
    monkeypatch.setenv(VARIABLE, word)
    assert choose_backend(GPU, torch.bfloat16) == word
    assert choose_backend(CPU, torch.float64) == word


@pytest.mark.parametrize(
    ("parts", "device", "dtype", "reason"),
    [
        ({}, CPU, torch.float32, "'cpu', where it needs TRITON_INTERPRET=1"),
        ({}, GPU, torch.float64, "it computes in float32, but the inputs are torch.float64"),
        ({"triton": False}, GPU, torch.float32, "triton is not installed"),
        ({"capability": (7, 5)}, GPU, torch.float16, r"capability 8\.0, but cuda:0 has 7\.5"),
    ],
)
def test_triton_is_refused_with_the_reason(machine, monkeypatch, parts, device, dtype, reason):
    machine(**parts)
    monkeypatch.setenv(VARIABLE, "triton")
    with pytest.raises(ValueError, match=f"`{VARIABLE}=triton` cannot run here: .*{reason}"):
        choose_backend(device, dtype)


def test_other_words_are_refused_by_the_attention_itself(monkeypatch):
    x = torch.rand(1, 1, 4, 2)
    monkeypatch.setenv(VARIABLE, "cuda")
    with pytest.raises(ValueError, match=rf"`{VARIABLE}` must be one of .*'naive'.* is 'cuda'"):
        causal_linear_attention(x, x, x)


def test_naive_agrees_with_the_chunks(monkeypatch):
    q, k, v = torch.rand(3, 1, 2, 30, 5, dtype=torch.float64)
    head, state = causal_linear_attention(
        q[:, :, :9], k[:, :, :9], v[:, :, :9], chunk_size=4, return_state=True
    )
    rest = [x[:, :, 9:] for x in (q, k, v)]
    chunked = causal_linear_attention(*rest, initial_state=state, return_state=True)
    monkeypatch.setenv(VARIABLE, "naive")
    naive = causal_linear_attention(*rest, initial_state=state, return_state=True)
    torch.testing.assert_close(naive, chunked)
    whole = causal_linear_attention(q, k, v)
    torch.testing.assert_close(whole, torch.cat((head, naive[0]), 2))
