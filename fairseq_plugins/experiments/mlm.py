"""Masked language models: LRPE's Table 8 and Figure 2, and the pre-training of the BERT paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.experiments.base import (
    BERT_SETTINGS,
    Experiment,
    Metrics,
    Scale,
    scales,
    unigram_baselines,
)
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant, in_stages
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Count, Loss, MetricsSchema, Perplexity, perplexity
from fairseq_plugins.records.recipe import trainings_of


class Curve(MetricsSchema):
    """Validation curve: the best validation, and all as pairs of updates and loss."""

    valid_loss: Loss
    valid_ppl: Perplexity
    best_update: Count
    curve: Annotated[list[Annotated[tuple[Count, Loss], Field(strict=False)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _best_is_in_it(self) -> Self:
        best = min(self.curve, key=lambda point: point[1])
        if best != (self.best_update, self.valid_loss):
            raise ValueError(f"best_update and valid_loss must be the best of the curve, {best}")
        return self


@dataclass(frozen=True)
class MaskedLanguageModel(Experiment):
    """Masked language model, measured at every validation of its training.

    Metrics: the best `valid_loss` (base 2, per masked token), its `valid_ppl` and `best_update`,
    and the `curve`, pairs of updates and loss.
    """

    budget: str = ""  # Hydra group that changes the scale's budget, empty for none
    kind: str = ""  # of the training, for runs that start from it
    # By scale the files of configs/mlm_stage/<scale> for the stages before the last.
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def variants(self, scale: str) -> Sequence[Variant]:
        budget = (f"+{self.budget}={scale}",) if self.budget else ()
        return in_stages(self.recipe, scale, self.stages.get(scale, ()), self.kind, last=budget)

    def measure(self, training: Training, folder: Path) -> Metrics:
        curve = logs.read_validations(folder / "train.log")
        if not curve:
            raise ValueError("the training printed no validation loss")
        update, loss = min(curve, key=lambda point: point[1])
        return {
            "valid_loss": loss,
            "valid_ppl": perplexity(loss),
            "best_update": update,
            "curve": [list(point) for point in curve],
        }

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        """Return the metrics of the last stage: losses at other lengths cannot be compared."""
        *_, last = parts.values()
        return dict(last)

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        return unigram_baselines(data, ("valid",))

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        configs = [config for r in results for config in trainings_of(r["config"]).values()]
        shares = sorted({_predicted(config["task"]) for config in configs})
        return [
            f"The models predict {' / '.join(shares)}.",
            "Losses are those that training prints, with three decimals: perplexities come in "
            "steps of 0.07 %, and those of two rows may be equal.",
        ]

    def comparability(self, scale: str) -> str:
        masks = (
            "Losses are in bits per masked token of the validation set. Its masks depend on the "
            "seed alone: they are the same for every row and at every evaluation."
        )
        return " ".join(filter(None, (masks, super().comparability(scale))))


def _predicted(task: Mapping[str, Any]) -> str:
    """Describe the predicted tokens, as "15% of the tokens"."""
    what = "words, each as a whole" if task.get("mask_whole_words") else "tokens"
    return f"{float(task['mask_prob']):.0%} of the {what}"


def _model(mini: str, **more: Any) -> MaskedLanguageModel:
    """Return the experiment; mini: the folder of data at that scale."""
    return MaskedLanguageModel(
        recipe="wikitext103_mlm",
        scales=scales(
            Scale("toy", COMMANDS["toy-mlm"]),
            Scale("mini", COMMANDS[mini]),
            Scale("small", COMMANDS["novels-small"], gpus=1),
            Scale("paper", COMMANDS["wikitext-103-mlm"], gpus=8),
        ),
        metrics=Curve,
        sides=("encoder",),
        scale_group="scale/mlm",
        shown="each run at its best validation",
        **more,
    )


MASKED_LANGUAGE_MODEL = _model(
    "novels-1000",
    stages={"mini": ("samples_8", "samples_16"), "small": ("samples_16", "samples_32")},
)
# A substitute for published BERT, trained with LRPE's settings, and the BERT paper's continued
# training of it with another position embedding.
BERT_START = _model("novels-mini", budget="bert_start", stages={"small": ("samples_16",)})
BERT_CONTINUED = _model(
    "novels-mini",
    budget="bert_continued",
    kind="continued",
    stages={"paper": ("samples_128",)},  # Table 6's first phase
    origin=InitialCheckpoint(
        "bert_start", row="learned", option="model.init_from", may_be_published=True
    ),
    settings=BERT_SETTINGS,
)
