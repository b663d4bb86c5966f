"""A checkpoint at multiples of the length that it was trained at; nothing is trained."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from fairseq_plugins.common.errors import CheckpointError, DataError, NoNumberError, OptionError
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.evaluation import language_model as evaluation
from fairseq_plugins.evaluation.extrapolation import Text, by_position, model_losses, window_losses
from fairseq_plugins.evaluation.masked_positions import masked_by_position
from fairseq_plugins.evaluation.perplexity import require_finite
from fairseq_plugins.evaluation.samples import TextSamples
from fairseq_plugins.modules.adaptation import AS_TRAINED, Adaptation
from fairseq_plugins.modules.loading import choose_device

STRIDE_PARTS = 4  # a sliding window moves by a quarter of itself
PLACES = 4  # means by position are over a quarter of the training length each
BATCH_TOKENS = 4096  # read at once, unless one window is longer
BLOCK = 1024  # tokens of a window whose logits are there at once

Line = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """Settings of a measurement beyond the training length.

    Attributes:
        path: of the checkpoint, a language model or a masked one.
        data: the folder of the data.
        factors: lengths, in those of the training.
        tokens: of the split that are scored, from its beginning: fewer where there are fewer or
            where they do not fill the windows. The same at all lengths, but of a masked model, in
            which every sample begins with <s>.
        split: train, valid or test.
        seed: of the masks, and of encodings that draw.
        cpu: even where there is a GPU.
        adaptation: what is another than in the training.
    """

    path: Path
    data: Path
    factors: tuple[int, ...]
    tokens: int
    split: str = "test"
    seed: int = 1
    cpu: bool = False
    adaptation: Adaptation = AS_TRAINED

    def __post_init__(self) -> None:
        for factor in self.factors:
            if factor < 1:
                raise OptionError(f"--lengths must be at least 1x each, but has {factor}x")
        if not self.factors:
            raise OptionError("--lengths must name at least one, but is empty")
        if self.tokens < 1:
            raise OptionError(f"--tokens must be at least 1, but is {self.tokens}")


def measure(request: Request) -> dict[str, Any]:
    """Losses at each length, and why there is none.

    Returns:
        The ``trained_length``, the ``checkpoint``'s sha256 and ``lengths``: by factor ("2x") the
        ``length``, scored ``tokens``, mean loss in ``bits`` in whole windows, of a causal model in
        ``sliding_bits`` ones as well, and the mean loss ``by_position`` in whole windows, each
        over a quarter of the training length, None where no token of it is masked; or the
        ``reason`` why there is no number.

    Raises:
        ValueError: a checkpoint or data that is missing, damaged or does not fit, or a text, or
            tokens of it, that do not fill one window of the longest length.
    """
    device = choose_device(cpu=request.cpu)
    read = evaluation.Request(
        path=request.path,
        data=request.data,
        split=request.split,
        seed=request.seed,
        device=str(device),
        adaptation=request.adaptation,
    )
    trained = evaluation.load(read)
    base = int(trained.task.tokens_per_sample)
    if base % PLACES:
        raise CheckpointError(
            f"{request.path} must be trained at a length that {PLACES} divides, but was at {base}"
        )
    measured = (_Masked if trained.is_masked else _Causal)(request, trained, base)
    lines: dict[str, Line] = {}
    for factor in request.factors:
        length = factor * base
        try:
            if request.adaptation:
                trained = evaluation.load(read, length)
            if length > (reach := trained.model.max_positions()):
                raise NoNumberError(f"{trained.encoding} has no meaning beyond position {reach}")
            # Each length as if it were the only one, for encodings that draw.
            utils.set_torch_seed(request.seed)
            found = measured.at(trained.model, length, base // PLACES)
            lines[f"{factor}x"] = {"length": length, **found}
        except NoNumberError as error:  # of all else that is wrong the command is to say so
            lines[f"{factor}x"] = {"length": length, "reason": str(error)}
    return {"trained_length": base, "checkpoint": sha256(request.path), "lengths": lines}


class _Causal:
    """A language model on the beginning of a split."""

    def __init__(self, request: Request, trained: evaluation.Trained, base: int) -> None:
        if trained.task.add_bos_token:
            raise CheckpointError(
                f"{request.path} must be trained without add_bos_token, which begins every sample "
                "with a token that is none of the text"
            )
        unit = math.lcm(*(factor * base for factor in request.factors))
        samples = TextSamples(
            request.data,
            request.split,
            trained.task,
            length=unit,
            context=0,
            break_mode="none",
            seed=request.seed,
        )
        count = min(request.tokens, samples.tokens) // unit
        if not count:
            raise DataError(
                f"{request.data}: {request.split} must fill a window of {unit} tokens, but has "
                f"{samples.tokens}, of which {request.tokens} at most are read (--tokens)"
            )
        parts = [samples.dataset[i] for i in range(count)]
        self._text = Text(*(torch.cat([part[k] for part in parts]) for k in ("source", "target")))

    def at(self, model: Any, length: int, width: int) -> Line:
        whole = self._all(model, length, length)
        sliding = self._all(model, length, length // STRIDE_PARTS)
        return {
            "tokens": whole.numel(),
            "bits": float(whole.mean()),
            "sliding_bits": float(sliding.mean()),
            "by_position": by_position(whole.view(-1, length), width).tolist(),
        }

    def _all(self, model: Any, length: int, stride: int) -> Tensor:
        """(N,) in the order of the text."""
        batch_size, losses = max(1, BATCH_TOKENS // length), model_losses(model, BLOCK)
        parts = window_losses(self._text, length, stride, losses, batch_size)
        found = torch.cat([part.flatten() for part in parts])
        require_finite(found)
        return found


class _Masked:
    """A masked model on the beginning of a split, with masks that follow from the seed."""

    def __init__(self, request: Request, trained: evaluation.Trained, base: int) -> None:
        longest = max(request.factors) * base
        if request.tokens < longest:
            raise OptionError(
                f"--tokens must be at least {longest}, one sample of the longest length, but is "
                f"{request.tokens}"
            )
        self._request, self._task = request, trained.task

    def at(self, model: Any, length: int, width: int) -> Line:
        bits, count = masked_by_position(
            model,
            self._request.data,
            self._request.split,
            self._task,
            length=length,
            samples=self._request.tokens // length,
            seed=self._request.seed,
            batch_size=max(1, BATCH_TOKENS // length),
        )
        bits, count = bits.view(-1, width).sum(1), count.view(-1, width).sum(1)
        if not count.any():
            raise OptionError(
                f"--tokens must be so many that some are masked in samples of {length}, but is "
                f"{self._request.tokens}"
            )
        means = [float(b / n) if n else None for b, n in zip(bits, count, strict=True)]
        return {
            "tokens": int(count.sum()),
            "bits": float(bits.sum() / count.sum()),
            "by_position": means,
        }


def parse_factors(text: str) -> tuple[int, ...]:
    """The numbers of ``1x,2x``, each once, in order.

    Raises:
        OptionError: another word.
    """
    found = []
    for word in text.split(","):
        number = word.strip().removesuffix("x")
        if not (word.strip().endswith("x") and number.isascii() and number.isdigit()):
            raise OptionError(f"--lengths must be like 1x,2x,4x, but has {word.strip()!r}")
        found.append(int(number))
    return tuple(sorted(set(found)))
