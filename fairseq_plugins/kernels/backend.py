"""Choice of the implementation of linear attention, and of softmax attention with a bias."""

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

import torch

from fairseq_plugins.kernels import native

Backend = Literal["triton", "native", "torch", "naive"]
BACKENDS: tuple[Backend, ...] = ("triton", "native", "torch", "naive")

VARIABLE = "FAIRSEQ_PLUGINS_KERNEL"
FLEX = "FAIRSEQ_PLUGINS_FLEX"  # 1 turns FlexAttention on, which takes 3 to 7 times flash's time
CAPABILITY = (8, 0)  # tensor cores with bfloat16 and TF32


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` (grad, vmap, ...) is active."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def is_traced() -> bool:
    """Return whether ``make_fx`` records operations, without those of a compiled library."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def needs_plain_operations() -> bool:
    """Return whether to avoid an ``autograd.Function`` that loops over the length.

    A compiled or recorded graph would unroll the loop for each length, and transforms of
    ``torch.func`` cannot trace it.
    """
    return torch.compiler.is_compiling() or is_transformed() or is_traced()


def apply_function(function: Any, *inputs: Any) -> Any:
    """Apply an autograd function that has a ``setup_context``.

    ``Function.apply`` inspects a signature at each call, for torch.func, which takes longer than
    the launches; the apply of its base class does not. Without gradients neither is needed.
    """
    if needs_plain_operations():
        return function.apply(*inputs)
    if not torch.is_grad_enabled():
        return function.forward(*inputs)
    return super(torch.autograd.Function, function).apply(*inputs)


def takes_all_chunks(device: torch.device) -> bool:
    """Return whether to compute all chunks at once, in plain operations.

    On a GPU the launches bound the time of a loop over chunks: 3,008 at 2,048 tokens, forward and
    backward; all chunks at once take 187 at any length.
    """
    return needs_plain_operations() or device.type == "cuda"


def goes_by_chunks(backend: Backend, device: torch.device) -> bool:
    """Return whether to attend chunk by chunk, in a loop or by the compiled library."""
    if backend == "native" and torch.compiler.is_compiling():
        return True  # as one operator, whose loop the compiler does not unroll
    return backend in ("native", "torch") and not takes_all_chunks(device)


def choose_backend(device: torch.device, dtype: torch.dtype) -> Backend:
    """Choose the fastest implementation that can run; the environment can force one.

    ``triton`` needs a GPU, ``native`` the compiled library, float32 and a CPU; ``torch`` runs
    everywhere, and also where the compiled library does not support the sizes.

    Args:
        device: of the inputs.
        dtype: of the inputs, promoted.

    Raises:
        ValueError: ``FAIRSEQ_PLUGINS_KERNEL`` is unknown or cannot run here.
    """
    word = os.environ.get(VARIABLE, "")
    if is_transformed() or is_traced():
        return "torch"
    if not word:
        if device.type == "cuda" and not _obstacle(device, dtype):
            return "triton"
        # An exported program has plain operations, so that it runs without this package.
        is_exported = torch.compiler.is_compiling() and torch.compiler.is_exporting()
        return "torch" if is_exported or native.obstacle(device, dtype) else "native"
    if word not in BACKENDS:
        raise ValueError(f"`{VARIABLE}` must be one of {list(BACKENDS)}, but is {word!r}.")
    obstacles = {"triton": _obstacle, "native": native.obstacle}
    if word in obstacles and (obstacle := obstacles[word](device, dtype)):
        raise ValueError(f"`{VARIABLE}={word}` cannot run here: {obstacle}.")
    return word


def uses_flex(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether softmax attention with a bias runs as FlexAttention, which Triton compiles.

    It does if ``FAIRSEQ_PLUGINS_FLEX`` is 1 and the device can run the backend ``triton``.

    Args:
        device: of the inputs.
        dtype: of the inputs, as autocast casts them.
    """
    if os.environ.get(FLEX) != "1" or device.type != "cuda" or is_transformed():
        return False
    return not _obstacle(device, dtype)


def _obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Return why the Triton kernel cannot run, or an empty string."""
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it computes in float32, but the inputs are {dtype}"
    if not _has_triton():
        return "triton is not installed"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return ""
    if device.type != "cuda":
        return f"the inputs are on {device.type!r}, where it needs TRITON_INTERPRET=1"
    if torch.version.hip:
        return "it was written for NVIDIA GPUs"
    capability = _capability(device)
    if capability < CAPABILITY:
        return "it needs compute capability {}.{}, but {} has {}.{}".format(
            *CAPABILITY, device, *capability
        )
    return ""


@lru_cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
