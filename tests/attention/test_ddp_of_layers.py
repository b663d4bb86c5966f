"""Layers under PyTorch's DistributedDataParallel as it is made by default.

Before each pass it sends rank 0's buffers to the others. Batches are longer on one rank than on the
other here, so that a buffer which grows with them has other sizes.
"""

import copy
import gc
import importlib
from pathlib import Path

import torch
import torch.distributed as dist
from attention_cases import Layer, count, tokens
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

from fairseq_plugins.attention import base

# Of each rank in each pass; the smallest table has 256 rows.
LENGTHS = ((7, 9), (300, 9), (9, 300), (9, 7))
CASES = [
    *(("base", "vanilla"), ("learnable_sinusoidal", "vanilla"), ("complex_order", "linear")),
    *(("rope", "linear"), ("rope", "vanilla"), ("xpos", "vanilla"), ("yarn", "linear")),
    *(("lrpe_type2", "linear"), ("lrpe_type3", "linear"), ("per", "linear"), ("spe", "linear")),
    *(("alibi", "vanilla"), ("sandwich", "vanilla"), ("t5", "vanilla"), ("shaw", "vanilla")),
    *(("xl", "vanilla"), ("sinusoidal_rpe", "vanilla"), ("base+rope", "linear")),
]


def test_longer_batches_on_one_rank_change_nothing(tmp_path: Path) -> None:
    start_processes(in_two, args=(tmp_path / "store",), nprocs=1, start_method="spawn")


def in_two(_: int, store: Path) -> None:
    """Fork both ranks from a process that has everything imported and no threads."""
    importlib.import_module("torch._dynamo")  # as the first wrapper does, for seconds
    start_processes(compare_with_plain, args=(store,), nprocs=2, start_method="fork")


def compare_with_plain(rank: int, store: Path) -> None:
    """Train each layer in this rank, wrapped and plain (AssertionError: they differ)."""
    torch.set_num_threads(1)
    base.draw_seed = lambda: torch.tensor(5)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for name, attention in CASES:
        train(name, attention, [lengths[rank] for lengths in LENGTHS])
    # A wrapper that outlives the group ends it while it holds Python's lock, for which the group's
    # threads may wait.
    gc.collect()
    dist.destroy_process_group()


def train(name: str, attention: str, lengths: list[int]) -> None:
    """Train one layer, wrapped and plain, on a batch of each length."""
    torch.manual_seed(0)
    plain = Layer(name, attention, causal=True)
    wrapped = DistributedDataParallel(copy.deepcopy(plain))
    assert wrapped.broadcast_buffers
    for length in lengths:
        x = tokens(1, length)
        found, expected = (layer(x, count(length)) for layer in (wrapped, plain))
        torch.testing.assert_close(found, expected, msg=name)
        for output in (found, expected):
            output.square().mean().backward()
        descend(plain, wrapped, name)


def descend(plain: Layer, wrapped: DistributedDataParallel, name: str) -> None:
    """Step down the mean of both ranks' gradients, which the wrapper has computed itself."""
    for one, other in zip(plain.parameters(), wrapped.parameters(), strict=True):
        dist.all_reduce(one.grad)
        torch.testing.assert_close(other.grad, one.grad / 2, msg=name)
        with torch.no_grad():
            one -= 0.1 * other.grad
            other -= 0.1 * other.grad
        one.grad = other.grad = None
