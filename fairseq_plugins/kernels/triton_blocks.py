"""Block sizes of the Triton kernels per architecture, tabulated (autotuning needs a GPU)."""

from typing import Any, NamedTuple

import torch
import triton.language as tl


class Blocks(NamedTuple):
    """Block sizes: tokens per chunk and per segment, warps, and stages of loading."""

    chunk: int
    segment: int
    warps: int
    stages: int


def choose_blocks(capability: tuple[int, int], dtype: torch.dtype, features: int) -> Blocks:
    """Return block sizes that fit the registers and shared memory reported by ptxas.

    GPUs 9.x and 10.x multiply from shared memory. Others hold operands in registers: three TF32
    products take the most, and the one of float16 inputs takes twice as many as bfloat16.
    tests/kernels/compile_triton.py measures the spilled registers.

    Args:
        capability: of the GPU.
        dtype: of the inputs.
        features: the wider of D' and M, as a power of two.
    """
    is_single, is_half, is_wide = dtype == torch.float32, dtype == torch.float16, features > 64
    if has_large_shared_memory(capability):
        if is_single:
            return Blocks(chunk=16 if is_wide else 32, segment=256, warps=8, stages=1)
        return Blocks(chunk=32 if is_half else 64, segment=256, warps=8, stages=2)
    if is_single:
        return Blocks(chunk=16, segment=256, warps=4, stages=1)
    if is_half and not is_wide:
        return Blocks(chunk=16, segment=256, warps=4, stages=1)  # two stages spill 72 bytes on 8.6
    return Blocks(chunk=16 if is_half else 32, segment=256, warps=8 if is_wide else 4, stages=2)


def widest_part(capability: tuple[int, int], dtype: torch.dtype) -> tuple[int, int]:
    """Return the most features and values that fit in the registers of one kernel."""
    if dtype == torch.float32:
        return (128, 64) if has_large_shared_memory(capability) else (64, 64)
    return (128, 128) if has_large_shared_memory(capability) else (128, 64)


def has_large_shared_memory(capability: tuple[int, int]) -> bool:
    """Return whether a GPU is a 9.x or 10.x, with 227 KiB of shared memory per program."""
    return capability[0] in (9, 10)


class Plan(NamedTuple):
    """Launch parameters that the kernels of one call share."""

    shape: tuple[int, int, int]
    features: int
    values: int
    blocks: Blocks
    dtype: torch.dtype

    @property
    def pairs(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def segments(self) -> int:
        return -(-self.shape[2] // self.blocks.segment)

    def constants(self) -> dict[str, Any]:
        """Return the compile-time arguments of all kernels but the scan."""
        return {
            "D": self.features,
            "M": self.values,
            "BLOCK_D": block_width(self.features),
            "BLOCK_M": block_width(self.values),
            "CHUNK": self.blocks.chunk,
            "num_warps": self.blocks.warps,
            "num_stages": self.blocks.stages,
        }

    def segmented(self) -> dict[str, Any]:
        """Return the compile-time arguments of the kernels that loop over a segment."""
        return self.constants() | operand_constants(self.dtype) | {"SEGMENT": self.blocks.segment}


def block_width(width: int) -> int:
    """Return the power of two that a width is padded to, at least 16 for tensor cores."""
    return max(16, 1 << (width - 1).bit_length())


def operand_constants(dtype: torch.dtype) -> dict[str, Any]:
    """Return the compile-time precision of operands for inputs of ``dtype``."""
    is_bfloat16 = dtype == torch.bfloat16
    return {
        "OPERAND": tl.bfloat16 if is_bfloat16 else tl.float32,
        "PRECISION": "tf32x3" if dtype == torch.float32 else "tf32",
    }
