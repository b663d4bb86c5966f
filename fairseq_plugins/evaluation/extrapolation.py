"""Losses at lengths beyond training, for the same tokens at every length.

Two protocols cut a text into windows of T tokens:

- whole windows: every token is scored with the 0 to T - 1 tokens before it in its window
  ("nonoverlapping inference" of ALiBi, Appendix B);
- sliding windows with a stride of S tokens: the last S tokens of each are scored, so that all but
  those of the first window have at least T - S tokens of context.

In the first protocol longer windows have an advantage, since fewer tokens have a short context; in
the second only the share S / T matters.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Losses = Callable[[Tensor, Tensor, int], Tensor]
"""Computes losses (B, last) in bits from tokens (B, T), targets (B, T) and `last`."""


def window_losses(
    tokens: Tensor, targets: Tensor, length: int, stride: int, losses: Losses, batch_size: int
) -> Iterator[Tensor]:
    """Yield the losses of every token in order: tensors (B, T), later (B, stride).

    The first window scores all its tokens, each later one the last `stride`. A stride of `length`
    gives whole windows.

    Args:
        tokens: (N,) int64, inputs of the model.
        targets: (N,) int64, the next token of each.
        length: T, tokens of a window.
        stride: tokens by which windows move.
        losses: computes the losses of a batch.
        batch_size: windows of a batch.

    Raises:
        ValueError: the windows do not fill the text, or the stride is not in 1..`length`.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"`stride` must be from 1 to the window's {length}, but is {stride}.")
    if len(tokens) < length or (len(tokens) - length) % stride:
        raise ValueError(
            f"`tokens` must be {length} and a multiple of {stride} more, but are {len(tokens)} "
            "instead."
        )
    inputs, wanted = (side.unfold(0, length, stride) for side in (tokens, targets))  # (N, T)
    # With sliding windows only the first is scored as a whole.
    first = 1 if stride < length else len(inputs)
    for chosen, last in ((slice(0, first), length), (slice(first, None), stride)):
        batches = (side[chosen].split(batch_size) for side in (inputs, wanted))
        for batch, of_batch in zip(*batches, strict=True):
            if len(batch):
                yield losses(batch, of_batch, last)


def by_position(losses: Tensor, width: int) -> Tensor:
    """Average losses over blocks of `width` positions: (N, T) -> (T / width,).

    Raises:
        ValueError: `width` does not divide the window.
    """
    if losses.size(1) % width:
        raise ValueError(f"`width` must divide {losses.size(1)} positions, but is {width} instead.")
    return losses.mean(0).view(-1, width).mean(1)


def model_losses(model: Any, block: int) -> Losses:
    """Make a function that computes a language model's losses.

    The output layer gets `block` tokens at once: with a large vocabulary, logits need most memory.
    """
    device = next(model.parameters()).device

    @torch.no_grad()
    def losses(tokens: Tensor, targets: Tensor, last: int) -> Tensor:
        features, extra = model.decoder(tokens.to(device), features_only=True)
        found = []
        features, targets = features[:, -last:], targets[:, -last:].to(device)
        for i in range(0, last, block):
            part, target = features[:, i : i + block], targets[:, i : i + block]
            log_probs = model.get_normalized_probs(
                (model.decoder.output_layer(part), extra), log_probs=True, sample={"target": target}
            )
            found.append(log_probs.gather(2, target.unsqueeze(2)).squeeze(2).double())
        return -torch.cat(found, 1).cpu() / math.log(2)

    return losses
