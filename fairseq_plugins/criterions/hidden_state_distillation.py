"""Criterion ``hidden_state_distillation``: match the hidden states of a pre-trained encoder.

After the position encoding or attention of a pre-trained encoder is replaced, its layers no longer
fit together. This criterion trains the changed model (student) to reproduce the hidden states of
the original (teacher) on the same tokens, without labels or output heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from omegaconf import MISSING
from torch import Tensor

from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.option_field import option
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, check_vocabulary
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import build_trained, read_trained
from fairseq_plugins.modules.vocabulary import vocabularies_of

NAME = "hidden_state_distillation"
_LAYERS = ChoiceEnum(["all", "last"])
_LEAST_NORM = 1e-6  # lower bound of a hidden state's norm, against division by 0
_SUMS = ("loss", "cosine", "ntokens", "nsentences", "sample_size")


@dataclass
class HiddenStateDistillationConfig(FairseqDataclass):
    """Options of the criterion."""

    teacher: str = option(MISSING, "pe_roberta checkpoint whose hidden states to match")
    layers: _LAYERS = option("all", "hidden states to match, with equal weights")


def relative_squared_error(states: Tensor, targets: Tensor) -> Tensor:
    """Return the squared distance of states to targets, divided by the targets' squared norm.

    Args:
        states: (N, C), hidden states of the student.
        targets: (N, C), hidden states of the teacher.

    Returns:
        (N,), 0 if a state equals its target and 1 if it is zero.
    """
    error = (states - targets).pow(2).sum(1)
    return error / targets.pow(2).sum(1).clamp(min=_LEAST_NORM**2)


@register_criterion(NAME, dataclass=HiddenStateDistillationConfig)
class HiddenStateDistillation(FairseqCriterion):
    """Mean relative squared error between hidden states, over tokens and layers, without padding.

    Layer 0 is the embedded input. Logs ``loss`` and ``cosine``, the mean cosine similarity between
    the last layers of student and teacher.

    Raises:
        CheckpointError: the teacher is missing, damaged, no ``pe_roberta``, or of another
            dictionary.
        OptionError: student and teacher differ in width or number of layers.
    """

    def __init__(self, cfg: HiddenStateDistillationConfig, task: Any) -> None:
        super().__init__(task)
        self._pad = task.source_dictionary.pad()
        self._only_last = str(cfg.layers) == "last"
        # A tuple hides the teacher from nn.Module, which would save and optimise its weights.
        self._teacher = (_build_teacher(Path(cfg.teacher), task),)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Return the loss summed over tokens, their number, and logs."""
        tokens = sample["net_input"]["src_tokens"]
        counted = tokens.ne(self._pad).t()  # (T, B), as hidden states are (T, B, C)
        teacher = self._teacher[0]
        if next(teacher.parameters()).device != tokens.device:
            teacher.to(tokens.device)
        with torch.no_grad():
            targets = [state[counted].float() for state in hidden_states(teacher, tokens)]
        states = [state[counted].float() for state in hidden_states(model, tokens)]
        if [state.shape for state in states] != [target.shape for target in targets]:
            raise OptionError(
                f"`teacher` must have the layers and the width of the model, {_sizes(states)}, "
                f"but has {_sizes(targets)}"
            )
        pairs = list(zip(states, targets, strict=True))
        compared = pairs[-1:] if self._only_last else pairs
        errors = torch.stack([relative_squared_error(*pair) for pair in compared])
        loss = errors.mean(0).sum()
        last, target = pairs[-1]
        cosine = torch.cosine_similarity(last.detach(), target, dim=1).sum()
        sample_size = counted.sum()
        logs = {
            "loss": loss.detach(),
            "cosine": cosine,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
        }
        return loss, sample_size, logs

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log loss and cosine per token over all processes."""
        sums = {key: sum(float(log.get(key, 0)) for log in logging_outputs) for key in _SUMS}
        tokens = sums["sample_size"]
        metrics.log_scalar("loss", sums["loss"] / tokens, tokens, round=5)
        metrics.log_scalar("cosine", sums["cosine"] / tokens, tokens, round=5)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Return True: all logged values are sums."""
        return True


def hidden_states(model: Any, tokens: Tensor) -> Sequence[Tensor]:
    """Return the embedded input and each layer's output, (T, B, C), for tokens (B, T)."""
    _, extra = model(src_tokens=tokens, features_only=True, return_all_hiddens=True)
    states: Sequence[Tensor] = extra["inner_states"]
    return states


def _sizes(states: Sequence[Tensor]) -> str:
    return f"{len(states) - 1} layers of width {states[0].size(1)}"


@checkpoint_given_by("`teacher`")
def _build_teacher(path: Path, task: Any) -> torch.nn.Module:
    """Load the teacher in evaluation mode, without gradients."""
    state = read_trained(path, models=[ROBERTA], tasks=None)
    check_vocabulary(path, state, *vocabularies_of(task, [ROBERTA_TABLE]))
    teacher: torch.nn.Module = build_trained(path, state, task=task)[0]
    return teacher.requires_grad_(False)
