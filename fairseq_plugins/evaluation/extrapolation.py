"""Losses at lengths beyond training: of the same words at every length, by place in the window.

Two protocols, of a text that is cut into windows of T tokens:

- whole windows, one after the other, every token of each is scored with all that precedes it
  there, from nothing to T - 1 tokens ("nonoverlapping inference" of ALiBi, Appendix B);
- a sliding window, moved by a stride of S tokens: the last S of each are scored, so that every
  token but those of the first window has at least T - S tokens before it.

In the first protocol a longer window helps by itself, since fewer tokens stand near its beginning;
in the second this is the same for all lengths, but for the share S / T.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Losses = Callable[[Tensor, Tensor, int], Tensor]
"""From tokens (B, T), targets (B, T) and how many to score, the losses (B, last) in bits."""


@dataclass(frozen=True)
class Text:
    """A text as a language model reads it.

    Attributes:
        tokens: (N,) int64, what it reads.
        targets: (N,) int64, what it is to predict there: the next token.
    """

    tokens: Tensor
    targets: Tensor

    def cut(self, start: int, length: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of a window: each (T,)."""
        chosen = slice(start, start + length)
        return self.tokens[chosen], self.targets[chosen]


def window_starts(count: int, length: int, stride: int) -> list[int]:
    """Return the starts of windows of `length` tokens that score each of `count` tokens once.

    The first scores all its tokens, each later one the last `stride`.

    Raises:
        ValueError: a text that these windows do not fill, or a stride that is not in the window.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"`stride` must be from 1 to the window's {length}, but is {stride}.")
    if count < length or (count - length) % stride:
        raise ValueError(
            f"`count` must be {length} and a multiple of {stride} more, but is {count} instead."
        )
    return list(range(0, count - length + 1, stride))


def window_losses(
    text: Text, length: int, stride: int, losses: Losses, batch_size: int
) -> Iterator[Tensor]:
    """The losses of every token, in the order of the text: tensors (B, T), later (B, stride).

    With a stride of `length` these are whole windows.

    Raises:
        ValueError: as `window_starts` does.
    """
    starts = window_starts(len(text.targets), length, stride)
    # The first window alone is scored as a whole, unless all are.
    parts = [(starts[:1], length), (starts[1:], stride)] if stride < length else [(starts, length)]
    for chosen, last in parts:
        for i in range(0, len(chosen), batch_size):
            windows = [text.cut(start, length) for start in chosen[i : i + batch_size]]
            tokens, targets = (torch.stack(side) for side in zip(*windows, strict=True))
            yield losses(tokens, targets, last)


def by_position(losses: Tensor, width: int) -> Tensor:
    """The mean loss of each `width` places of a window: (N, T) -> (T / width,).

    Raises:
        ValueError: a width that does not divide the window.
    """
    if losses.size(1) % width:
        raise ValueError(f"`width` must divide {losses.size(1)} places, but is {width} instead.")
    return losses.mean(0).view(-1, width).mean(1)


def model_losses(model: Any, block: int) -> Losses:
    """The losses of a language model, of `block` tokens of a window at once.

    The output layer sees no more than these, since at many words its logits are what takes memory.
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
