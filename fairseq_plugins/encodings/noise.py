"""Noise as a function of a seed, the same on every device, and positions put side by side."""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fairseq_plugins.encodings.tables import without_modes
from fairseq_plugins.kernels.backend import is_transformed


def draw_seed() -> Tensor:
    """A seed () int64 for the draws of a stochastic encoding, from torch's global generator.

    fairseq seeds that one for every update, and restores it where activations are recomputed.
    """
    return torch.randint(2**62, ())


def standard_normal(seed: int | Tensor, name: str, shape: Sequence[int]) -> Tensor:
    """N(0, 1) draws of ``shape``, float32 on the CPU, that depend on the arguments alone."""
    noise: Tensor = _standard_normal(torch.as_tensor(seed), name, list(shape))
    return noise


# One node of a compiled graph, which could look neither into the hash nor into the generator.
@torch.library.custom_op("fairseq_plugins::standard_normal", mutates_args=())
def _standard_normal(seed: Tensor, name: str, shape: Sequence[int]) -> Tensor:
    digest = hashlib.blake2b(f"{int(seed)}/{name}".encode(), digest_size=8).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest, "little"))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


@_standard_normal.register_fake
def _(seed: Tensor, name: str, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu")


class Draw:
    """The noise of one seed, by name; what was asked for is kept, on the device it is used on.

    No module and no buffers: noise belongs neither into a state dict nor among the tensors that
    distributed training synchronises.
    """

    def __init__(self, seed: int | Tensor = 0) -> None:
        self.seed = seed
        self._kept: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """The noise ``name`` of ``shape``, with the device and dtype of ``like``."""
        device, dtype = like.device, like.dtype

        def make() -> Tensor:
            noise = self._kept.get(name)
            if noise is None:
                noise = standard_normal(self.seed, name, shape)
            # Kept in the dtype of use: float32 draws survive the way to float64 and back.
            return noise.to(device=device, dtype=dtype)

        if is_transformed():
            noise = without_modes(make)
        else:
            # Under inference mode it would become a tensor that no later training may use.
            with torch.inference_mode(False):
                noise = make()
        self._kept[name] = noise
        return noise

    def keep_only(self, names: set[str]) -> None:
        """Forget the other noise; asked for again, it is drawn again."""
        self._kept = {name: noise for name, noise in self._kept.items() if name in names}


def group_by_position(positions: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Put the tokens of a batch side by side that have the same position.

    Args:
        positions: (B, T) int64, repeated ones allowed.
        capacity: tokens per group; a more frequent position has several groups.

    Returns:
        The positions (U,) that occur, ascending; for each of G groups the index into them (G,);
        and for each token (B, T) its slot in 0..G * capacity - 1.
    """
    unique, index, counts = positions.unique(return_inverse=True, return_counts=True)
    index = index.flatten()
    order = index.argsort(stable=True)
    ahead = counts.cumsum(0) - counts
    rank = torch.empty_like(index)
    rank[order] = torch.arange(len(index), device=index.device) - ahead[index[order]]
    groups = (counts + capacity - 1) // capacity
    first = groups.cumsum(0) - groups
    slot = (first[index] + rank // capacity) * capacity + rank % capacity
    owner = torch.arange(len(unique), device=unique.device).repeat_interleave(groups)
    return unique, owner, slot.view_as(positions)


def runs(ascending: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, length) of each stretch of consecutive integers."""
    start = 0
    for i in range(1, len(ascending) + 1):
        if i == len(ascending) or ascending[i] != ascending[i - 1] + 1:
            yield ascending[start], i - start
            start = i
