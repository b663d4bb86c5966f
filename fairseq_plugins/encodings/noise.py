"""Noise as a function of a seed, the same on every device, and grouping of tokens by position."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from fairseq_plugins.encodings.tables import without_modes
from fairseq_plugins.kernels.backend import is_transformed


def draw_seed() -> Tensor:
    """Draw a seed () int64 for a stochastic encoding from torch's global generator.

    fairseq seeds that generator in every update, and restores it where activations are recomputed.
    """
    return torch.randint(2**62, (), device="cpu")


def standard_normal(seed: int | Tensor, name: str, shape: Sequence[int]) -> Tensor:
    """Draw ``shape`` from N(0, 1), float32 on the CPU, as a function of the arguments alone."""
    noise: Tensor = _standard_normal(torch.as_tensor(seed, device="cpu"), name, list(shape))
    return noise


# A custom operation, because torch.compile can trace neither the hash nor the generator.
@torch.library.custom_op("fairseq_plugins::standard_normal", mutates_args=())
def _standard_normal(seed: Tensor, name: str, shape: Sequence[int]) -> Tensor:
    digest = hashlib.blake2b(f"{int(seed)}/{name}".encode(), digest_size=8).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest, "little"))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


@_standard_normal.register_fake
def _(seed: Tensor, name: str, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu")


class Draw:
    """The noise of one seed, by name, cached on the device where it is used.

    Not a module with buffers: noise belongs neither in a state dict nor among the tensors that
    distributed training synchronises.
    """

    def __init__(self, seed: int | Tensor = 0) -> None:
        self.seed = seed
        self._cache: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the noise ``name`` of ``shape``, with the device and dtype of ``like``."""
        device, dtype = like.device, like.dtype

        def make() -> Tensor:
            noise = self._cache.get(name)
            if noise is None:
                noise = standard_normal(self.seed, name, shape)
            # Cached in the dtype of use: float32 draws survive a cast to float64 and back.
            return noise.to(device=device, dtype=dtype)

        if is_transformed():
            noise = without_modes(make)
        else:
            # In inference mode it would become a tensor that later training cannot use.
            with torch.inference_mode(False):
                noise = make()
        self._cache[name] = noise
        return noise

    def keep_only(self, names: set[str]) -> None:
        """Drop all other noise from the cache; it can be drawn again."""
        self._cache = {name: noise for name, noise in self._cache.items() if name in names}


def group_by_position(positions: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group the tokens of a batch by their position.

    Args:
        positions: (B, T) int64, repeated ones allowed.
        capacity: tokens per group; positions with more tokens have several groups.

    Returns:
        The distinct positions (U,), ascending; the index of each group's position (G,); and the
        slot of each token (B, T), in 0..G * capacity - 1.
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
    of_group = torch.arange(len(unique), device=unique.device).repeat_interleave(groups)
    return unique, of_group, slot.view_as(positions)


def runs(ascending: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each stretch of consecutive integers."""
    for _, stretch in groupby(enumerate(ascending), lambda item: item[1] - item[0]):
        (_, start), *rest = stretch
        yield start, 1 + len(rest)
