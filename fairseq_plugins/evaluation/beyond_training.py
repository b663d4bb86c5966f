"""Losses of a checkpoint at multiples of its training length."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from fairseq_plugins.common.errors import CheckpointError, DataError, NoNumberError, OptionError
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.evaluation.extrapolation import by_position, model_losses, window_losses
from fairseq_plugins.evaluation.language_model import EvaluationOptions, LoadedModel, load
from fairseq_plugins.evaluation.perplexity import require_finite
from fairseq_plugins.evaluation.samples import MaskedSamples, TextSamples

STRIDE_PARTS = 4  # a sliding window moves by a quarter of its length
BLOCKS = 4  # means by position cover a quarter of the training length each
BATCH_TOKENS = 4096  # tokens of a batch, unless one window is longer
BLOCK = 1024  # tokens of a window whose logits are in memory at once


def measure(options: EvaluationOptions, factors: Sequence[int], tokens: int) -> dict[str, Any]:
    """Measure the losses of a causal or a masked language model at each length.

    Args:
        options: checkpoint, data, split, seed of the masks and of random encodings, and changes to
            the trained model.
        factors: lengths as multiples of the training length.
        tokens: number of tokens to score, from the beginning of the split, cut to whole windows.
            The same at all lengths, except for a masked model, whose samples begin with <s>.

    Returns:
        The ``trained_length``, the ``checkpoint``'s sha256 and ``lengths``: by factor ("2x") the
        ``length``, scored ``tokens``, mean loss in ``bits`` in whole windows, for a causal model
        also ``sliding_bits`` in sliding windows, and the mean loss ``by_position`` in whole
        windows, for each quarter of the training length (None without a masked token); or the
        ``reason`` why there is no number.

    Raises:
        ValueError: checkpoint or data are missing, damaged or do not fit, or the scored tokens
            do not fill one window of the longest length.
    """
    check_at_least(1, tokens=tokens)
    trained = load(options)
    base = int(trained.task.tokens_per_sample)
    if base % BLOCKS:
        raise CheckpointError(
            f"{options.path} must be trained at a length divisible by {BLOCKS}, but was at {base}"
        )
    lengths = [factor * base for factor in factors]
    split = (_MaskedSplit if trained.is_masked else _CausalSplit)(options, trained, lengths, tokens)
    lines: dict[str, dict[str, Any]] = {}
    for factor, length in zip(factors, lengths, strict=True):
        try:
            if options.adaptation:
                trained = load(options, length)
            if length > (longest := trained.model.max_positions()):
                raise NoNumberError(f"{trained.encoding} has no meaning beyond position {longest}")
            # Seeded here, so that random encodings make no result depend on the other lengths.
            utils.set_torch_seed(options.seed)
            found = split.measure(trained.model, length, base // BLOCKS)
            lines[f"{factor}x"] = {"length": length, **found}
        except NoNumberError as error:  # other errors end the command
            lines[f"{factor}x"] = {"length": length, "reason": str(error)}
    return {"trained_length": base, "checkpoint": sha256(options.path), "lengths": lines}


class _CausalSplit:
    """The beginning of a split, for causal language models."""

    def __init__(
        self, options: EvaluationOptions, trained: LoadedModel, lengths: Sequence[int], tokens: int
    ) -> None:
        if trained.task.add_bos_token:
            raise CheckpointError(
                f"{options.path} must be trained without add_bos_token, which adds a token to "
                "every sample"
            )
        unit = math.lcm(*lengths)
        if unit > tokens:
            raise OptionError(
                f"--tokens must fill a window of {unit} tokens, a multiple of all --lengths, but "
                f"is {tokens}"
            )
        task, seed = trained.task, options.seed
        samples = TextSamples(options.data, options.split, task, length=unit, seed=seed)
        count = min(tokens, samples.tokens) // unit
        if not count:
            raise DataError(
                f"{options.data}: {options.split} must fill a window of {unit} tokens, but has "
                f"{samples.tokens}, of which --tokens {tokens} are read"
            )
        parts = [samples.dataset[i] for i in range(count)]
        self._tokens = torch.cat([part["source"] for part in parts])
        self._targets = torch.cat([part["target"] for part in parts])

    def measure(self, model: Any, length: int, width: int) -> dict[str, Any]:
        whole = self._losses(model, length, length)
        sliding = self._losses(model, length, length // STRIDE_PARTS)
        return {
            "tokens": whole.numel(),
            "bits": float(whole.mean()),
            "sliding_bits": float(sliding.mean()),
            "by_position": by_position(whole.view(-1, length), width).tolist(),
        }

    def _losses(self, model: Any, length: int, stride: int) -> Tensor:
        """Return losses (N,) in the order of the text."""
        batch_size, losses = max(1, BATCH_TOKENS // length), model_losses(model, BLOCK)
        parts = window_losses(self._tokens, self._targets, length, stride, losses, batch_size)
        found = torch.cat([part.flatten() for part in parts])
        require_finite(found)
        return found


class _MaskedSplit:
    """The beginning of a split, masked by the seed, for masked language models."""

    def __init__(
        self, options: EvaluationOptions, trained: LoadedModel, lengths: Sequence[int], tokens: int
    ) -> None:
        longest = max(lengths)
        if tokens < longest:
            raise OptionError(
                f"--tokens must be at least {longest}, one sample of the longest length, but is "
                f"{tokens}"
            )
        self._options, self._task, self._tokens = options, trained.task, tokens

    def measure(self, model: Any, length: int, width: int) -> dict[str, Any]:
        options, seed = self._options, self._options.seed
        samples = MaskedSamples(options.data, options.split, self._task, length=length, seed=seed)
        whole = min(self._tokens // length, int((samples.sizes == length - 1).sum()))
        if whole < 1:
            raise DataError(
                f"{options.data}: {options.split} must fill a sample of {length} tokens, but has "
                f"{samples.tokens}"
            )
        bits, count = masked_by_position(model, samples, whole, max(1, BATCH_TOKENS // length))
        bits, count = bits.view(-1, width).sum(1), count.view(-1, width).sum(1)
        if not count.any():
            raise OptionError(
                f"--tokens must be large enough for a masked token in samples of {length}, but is "
                f"{self._tokens}"
            )
        means = [float(b / n) if n else None for b, n in zip(bits, count, strict=True)]
        return {
            "tokens": int(count.sum()),
            "bits": float(bits.sum() / count.sum()),
            "by_position": means,
        }


@torch.no_grad()
def masked_by_position(
    model: Any, samples: MaskedSamples, count: int, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Sum the losses of the first samples in bits (T,) and count them (T,) by position.

    Tokens are masked as in training. Position 0 is <s>, which is never scored when it is masked:
    its loss is near 0, and its share is larger in short samples.

    Raises:
        NoNumberError: losses are not finite.
    """
    dataset, device = samples.dataset, next(model.parameters()).device
    dataset.set_epoch(1)  # masks depend on epoch and seed
    length = samples.longest + samples.num_bos
    bits, found = torch.zeros(length, dtype=torch.float64), torch.zeros(length, dtype=torch.int64)
    padding = samples.task.source_dictionary.pad()
    for start in range(0, count, batch_size):
        batch = dataset.collater([dataset[i] for i in range(start, min(start + batch_size, count))])
        target, tokens = batch["target"], batch["net_input"]["src_tokens"].to(device)
        masked = target.ne(padding)  # (B, T)
        masked[:, 0] = False
        logits = model(src_tokens=tokens, masked_tokens=masked.to(device))[0]  # (N, V)
        log_probs = torch.log_softmax(logits.float(), -1).cpu()
        losses = -log_probs.gather(1, target[masked].unsqueeze(1)).squeeze(1).double() / math.log(2)
        require_finite(losses)
        positions = masked.nonzero()[:, 1]
        bits.index_add_(0, positions, losses)
        found += torch.bincount(positions, minlength=length)
    return bits, found
