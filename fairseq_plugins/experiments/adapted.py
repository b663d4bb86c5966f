"""Published models adapted to another position encoding or attention.

The BERT paper replaces the position embedding of a published model and trains it on. Until the
changed model has recovered, fine-tuning it measures the recovery and not the encoding. So it is
trained to copy the hidden states of the unchanged model, and the similarity that it reaches is
recorded with every run that starts from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.experiments.base import LRPE_SETTINGS, Experiment, Metrics, Scale, scales
from fairseq_plugins.experiments.mlm import BERT_CONTINUED
from fairseq_plugins.experiments.training import Training, Variant, in_stages
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import Cosine, Count, MetricsSchema, NotNegative
from fairseq_plugins.records.recipe import total_batch

_STAGES = {PUBLISHED: ("samples_128",)}  # files of configs/mlm_stage/<scale>, before the last stage

_Point = Annotated[tuple[Count, Cosine], Field(strict=False)]


class TeacherSimilarity(MetricsSchema):
    """Similarity of an adapted model to its teacher on held-out text.

    valid_error: mean relative squared error over layers and tokens. cosine: mean cosine between
    the last layers. cosines: pairs of tokens seen in training and cosine, of each validation.
    tokens: all tokens seen in training.
    """

    valid_error: NotNegative
    cosine: Cosine
    cosines: Annotated[list[_Point], Field(min_length=1)]
    tokens: Count


@dataclass(frozen=True)
class Adapted(Experiment):
    """Model trained to copy the hidden states of its start, measured during training."""

    def variants(self, scale: str) -> Sequence[Variant]:
        return in_stages(
            self.recipe, scale, _STAGES.get(scale, ()), "adapted", every=(f"+adapted={scale}",)
        )

    def measure(self, training: Training, folder: Path) -> Metrics:
        tokens = total_batch(training.config) * training.config["task"]["tokens_per_sample"]
        measured = logs.read_validated(folder / "train.log", ("loss", "cosine"))
        if not measured:
            raise ValueError("the training printed no validation")
        best = min(measured.values(), key=lambda numbers: numbers["loss"])
        return {
            "valid_error": best["loss"],
            "cosine": best["cosine"],
            "cosines": [[step * tokens, one["cosine"]] for step, one in sorted(measured.items())],
            "tokens": max(measured) * tokens,
        }

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        """Return the metrics of the last stage, with the cosines of all stages by tokens seen."""
        before, cosines = 0, []
        for part in parts.values():
            cosines += [[before + tokens, cosine] for tokens, cosine in part["cosines"]]
            before += part["tokens"]
        *_, last = parts.values()
        return {**last, "cosines": cosines, "tokens": before}

    def start_metrics(self, trainings: Sequence[Training], root: Path) -> Metrics:
        parts = {t.variant.name: self.measure(t, root / t.folder) for t in trainings}
        metrics = self.combine(parts)
        return {"start_cosine": metrics["cosine"], "start_tokens": metrics["tokens"]}

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        tokens = sorted({result["metrics"]["tokens"] for result in results})
        return [
            "Each row is trained to copy the hidden states of all layers of the unchanged "
            f"published model on {' / '.join(f'{count / 1e6:.2f}' for count in tokens)} million "
            "tokens of plain text. `cosine` is the mean cosine between the last layers' outputs of "
            "the two on held-out text; 1 means that they are equal."
        ]


BERT_ADAPTED = BERT_CONTINUED.measured_by(
    Adapted,
    scales=scales(Scale("toy", COMMANDS["toy-mlm"]), Scale(PUBLISHED, COMMANDS["novels-start"])),
    metrics=TeacherSimilarity,
    origin=BERT_CONTINUED.origin,
)
LRPE_ADAPTED = replace(BERT_ADAPTED, settings=LRPE_SETTINGS)
