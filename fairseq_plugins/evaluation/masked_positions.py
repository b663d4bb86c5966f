"""Losses of a masked language model by the masked token's position."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.evaluation.perplexity import require_finite
from fairseq_plugins.evaluation.samples import MaskedSamples


@torch.no_grad()
def masked_by_position(
    model: Any,
    data: Path,
    split: str,
    trained: Any,
    *,
    length: int,
    samples: int,
    seed: int,
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Sum the losses in bits (T,) and count them (T,) by position; position 0 is <s>.

    The text is cut into samples regardless of lines, and masked as in training. A masked <s> is
    never scored: its loss is near 0, and its share is larger in short samples.

    Args:
        model: a `pe_roberta`.
        data: the data folder.
        split: train, valid or test.
        trained: task options of the training.
        length: T, tokens of a sample with its <s>.
        samples: number of samples to read at most, the first whole ones.
        seed: seed of the masks.
        batch_size: samples per batch.

    Raises:
        ValueError: the split has no whole sample, or losses are not finite.
    """
    cut = MaskedSamples(data, split, trained, length=length, break_mode="none", seed=seed)
    dataset, device = cut.dataset, next(model.parameters()).device
    whole = min(samples, int((cut.sizes == length - 1).sum()))
    if whole < 1:
        raise DataError(
            f"{data}: {split} must fill a sample of {length} tokens, but has {cut.tokens}"
        )
    dataset.set_epoch(1)  # masks depend on epoch and seed
    bits, count = torch.zeros(length, dtype=torch.float64), torch.zeros(length, dtype=torch.int64)
    padding = cut.task.source_dictionary.pad()
    for start in range(0, whole, batch_size):
        chosen = range(start, min(start + batch_size, whole))
        batch = dataset.collater([dataset[i] for i in chosen])
        target, tokens = batch["target"], batch["net_input"]["src_tokens"].to(device)
        masked = target.ne(padding)  # (B, T)
        masked[:, 0] = False
        logits = model(src_tokens=tokens, masked_tokens=masked.to(device))[0]  # (N, V)
        log_probs = torch.log_softmax(logits.float(), -1).cpu()
        found = -log_probs.gather(1, target[masked].unsqueeze(1)).squeeze(1).double() / math.log(2)
        require_finite(found)
        positions = masked.nonzero()[:, 1]
        bits.index_add_(0, positions, found)
        count += torch.bincount(positions, minlength=length)
    return bits, count
