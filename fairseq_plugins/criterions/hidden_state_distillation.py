"""Criterion ``hidden_state_distillation``: bring an encoder back to a published one.

After the position encoding or the attention of a pre-trained encoder was exchanged, its layers
no longer fit together. This criterion trains the exchanged model (the student) to give the hidden
states of the unchanged one (the teacher) on the same tokens. It needs no labels and no output
head.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from omegaconf import MISSING
from torch import Tensor

from fairseq_plugins.common.errors import CheckpointError, OptionError
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, check_vocabulary
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import build_trained, read_trained
from fairseq_plugins.modules.vocabulary import vocabularies_of

NAME = "hidden_state_distillation"
_LAYERS = ChoiceEnum(["all", "last"])
_LEAST_NORM = 1e-6  # of a hidden state, so that none is divided by zero
_SUMS = ("loss", "cosine", "ntokens", "nsentences", "sample_size")


@dataclass
class HiddenStateDistillationConfig(FairseqDataclass):
    """Options of the criterion."""

    teacher: str = field(
        default=MISSING, metadata={"help": "checkpoint of pe_roberta whose hidden states to match"}
    )
    layers: _LAYERS = field(
        default="all", metadata={"help": "which hidden states to match, each with the same weight"}
    )


def relative_squared_error(states: Tensor, targets: Tensor) -> Tensor:
    """Squared distance of each state to its target, in units of the target's squared norm.

    Args:
        states: (N, C), of the student.
        targets: (N, C), of the teacher.

    Returns:
        (N,), 0 where a state is its target and 1 where it is zero.
    """
    error = (states - targets).pow(2).sum(1)
    return error / targets.pow(2).sum(1).clamp(min=_LEAST_NORM**2)


@register_criterion(NAME, dataclass=HiddenStateDistillationConfig)
class HiddenStateDistillation(FairseqCriterion):
    """Mean over tokens and layers of the relative squared error between hidden states.

    Layer 0 is the embedded input. Logged: ``loss``, and ``cosine``, the mean cosine between the
    last layers of student and teacher. Padding does not count.

    Raises:
        CheckpointError: the teacher is missing, damaged, no ``pe_roberta``, or of another
            dictionary.
        OptionError: student and teacher have different widths or numbers of layers.
    """

    def __init__(self, cfg: HiddenStateDistillationConfig, task: Any) -> None:
        super().__init__(task)
        self._pad = task.source_dictionary.pad()
        self._only_last = str(cfg.layers) == "last"
        # In a tuple, since the weights of a submodule would be saved and optimised.
        self._teacher = (_build_teacher(Path(cfg.teacher), task),)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Loss of a batch, summed over its tokens; their number; logs."""
        tokens = sample["net_input"]["src_tokens"]
        counted = tokens.ne(self._pad).t()  # (T, B), as hidden states are (T, B, C)
        teacher = self._teacher[0].to(tokens.device)
        with torch.no_grad():
            targets = [state[counted].float() for state in hidden_states(teacher, tokens)]
        states = [state[counted].float() for state in hidden_states(model, tokens)]
        if [one.shape for one in states] != [one.shape for one in targets]:
            raise OptionError(
                f"`teacher` must have the layers and the width of the model, {_sizes(states)}, "
                f"but has {_sizes(targets)}"
            )
        pairs = list(zip(states, targets, strict=True))
        compared = pairs[-1:] if self._only_last else pairs
        errors = torch.stack([relative_squared_error(one, target) for one, target in compared])
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
        """Loss and cosine per token of all processes."""
        sums = {key: sum(float(log.get(key, 0)) for log in logging_outputs) for key in _SUMS}
        tokens = sums["sample_size"]
        metrics.log_scalar("loss", sums["loss"] / tokens, tokens, round=5)
        metrics.log_scalar("cosine", sums["cosine"] / tokens, tokens, round=5)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every logged value is a sum."""
        return True


def hidden_states(model: Any, tokens: Tensor) -> Sequence[Tensor]:
    """The embedded input and the output of every layer, (T, B, C) each, for tokens (B, T)."""
    _, extra = model(src_tokens=tokens, features_only=True, return_all_hiddens=True)
    states: Sequence[Tensor] = extra["inner_states"]
    return states


def _sizes(states: Sequence[Tensor]) -> str:
    return f"{len(states) - 1} layers of width {states[0].size(1)}"


def _build_teacher(path: Path, task: Any) -> torch.nn.Module:
    """The teacher, without gradients and in evaluation mode."""
    try:
        state = read_trained(path, models=[ROBERTA], tasks=None)
    except CheckpointError as error:
        raise CheckpointError(f"`teacher` must be a checkpoint, but {error}") from error
    check_vocabulary(path, state, *vocabularies_of(task, [ROBERTA_TABLE]))
    model, _, _ = build_trained(path, state, task=task)
    model.requires_grad_(False)
    teacher: torch.nn.Module = model
    return teacher
