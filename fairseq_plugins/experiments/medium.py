"""SQuAD after every part of a pre-training: Figure 7 of the BERT paper, its BERT-medium."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from fairseq_plugins.experiments.base import Metrics, Scale, Step
from fairseq_plugins.experiments.mlm import BERT_CONTINUED
from fairseq_plugins.experiments.squad import RECIPES, SQUAD, Answers, Squad, fine_tuning
from fairseq_plugins.experiments.training import Training, Variant
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Count, Loss, Percent, Strict
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.runs import Run

GROUP = "bert_figure7"  # of configs/: by scale what a part and a fine-tuning are
_SAMPLES = "samples_"


class Part(Strict):
    """What was measured after a part; samples: their length, updates: all so far."""

    samples: Count
    updates: Count
    valid_loss: Loss
    v1_exact: Percent
    v1_f1: Percent
    v2_exact: Percent
    v2_f1: Percent


class ByPart(Answers):
    """The answers after the last part, after the last one on shorter samples, and after each."""

    short_v1_exact: Percent
    short_v1_f1: Percent
    short_v2_exact: Percent
    short_v2_f1: Percent
    parts: list[Part] = Field(min_length=2)

    @model_validator(mode="after")
    def _are_those_of_the_parts(self) -> Self:
        last = self.parts[-1]
        short = next((p for p in reversed(self.parts) if p.samples < last.samples), None)
        if short is None:
            raise ValueError("parts must have samples that are shorter than those of the last one")
        for version in RECIPES:
            for key in (f"{version}_exact", f"{version}_f1"):
                for name, part in ((key, last), (f"short_{key}", short)):
                    if getattr(self, name) != getattr(part, key):
                        raise ValueError(f"{name} must be that of its part, {getattr(part, key)}")
        return self


@dataclass(frozen=True)
class Medium(Squad):
    """Pre-trained from scratch in parts, on both versions of SQuAD fine-tuned after each of them.

    Metrics: those of `ByPart`.

    parts: by scale the length of each part's samples, `configs/bert_figure7/<scale>/samples_N`.
    """

    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def variants(self, scale: str) -> Sequence[Variant]:
        found: list[Variant] = []
        before = None
        for number, length in enumerate(self.parts[scale], start=1):
            name = f"part_{number}"
            own = (f"+{GROUP}/{scale}={_SAMPLES}{length}",)
            kind = f"samples of {length}"
            found.append(Variant(name, self.recipe, own, kind, after=before))
            tuned = (f"+{GROUP}/{scale}=squad",)
            found += [fine_tuning(v, f"{name}_{v}", tuned, after=name) for v in RECIPES]
            before = name
        return found

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        if training.variant.recipe == self.recipe:
            return []
        return super().steps(training, checkpoint, run, gpus)

    def measure(self, training: Training, folder: Path) -> Metrics:
        """Of a part its length, its updates and its best loss."""
        if training.variant.recipe != self.recipe:
            return {}
        curve = logs.read_validations(folder / "train.log")
        if not curve:
            raise ValueError("the training printed no validation loss")
        return {
            "samples": int(training.config["task"]["tokens_per_sample"]),
            "updates": training.max_update,
            "valid_loss": min(loss for _, loss in curve),
        }

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        found = list(_by_part(parts))
        last = found[-1]
        short = [part for part in found if part["samples"] < last["samples"]][-1]
        return {
            **{key: last[key] for key in _answers(last)},
            **{f"short_{key}": short[key] for key in _answers(short)},
            "parts": found,
        }

    def floors(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        found = super().floors(data, scale)
        return {**found, **{f"short_{metric}": floor for metric, floor in found.items()}}

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        lengths = sorted({tuple(p["samples"] for p in r["metrics"]["parts"]) for r in results})
        told = " / ".join(", ".join(map(str, parts)) for parts in lengths)
        warmups = sorted(
            {
                int(config["lr_scheduler"].get("warmup_updates", 0))
                for result in results
                for name, config in trainings_of(result["config"]).items()
                if name.startswith("samples")
            }
        )
        return [
            f"Pre-trained from scratch in parts, on samples of {told} tokens, each part from the "
            "best checkpoint of the one before; both versions of SQuAD are fine-tuned after each. "
            "Every part begins with a new optimiser and a warm-up of "
            f"{' / '.join(map(str, warmups))} updates, after which its learning rate stays where "
            "it is. The paper does not say its schedule; presumably one over all epochs.",
            "After short samples, positions beyond their length have not been trained.",
            *super().facts(results),
        ]

    def comparability(self, scale: str) -> str:
        return "\n\n".join(
            (
                super().comparability(scale),
                "In the figure, a point for each part, the mean over seeds; the vertical line is "
                "where samples get as long as they ever are. The paper saw that before it "
                "learnable sinusoids and relative embeddings are ahead of the learned embedding "
                "on both versions, and prints no numbers.",
            )
        )


def _by_part(parts: Mapping[str, Metrics]) -> Iterator[Metrics]:
    """What was measured after each part, from the metrics of all trainings by name."""
    updates = 0
    for name, metrics in parts.items():
        if "samples" not in metrics:
            continue
        updates += metrics["updates"]
        answers = (parts[f"{name}_{version}"] for version in RECIPES)
        merged = {key: value for found in answers for key, value in found.items()}
        yield {**metrics, "updates": updates, **merged}


def _answers(part: Metrics) -> list[str]:
    return [key for key in part if key.startswith(tuple(RECIPES))]


def _both(name: str) -> Scale:
    """A scale with the data of pre-training and of SQuAD."""
    first, second = BERT_CONTINUED.scales[name], SQUAD.scales[name]
    return Scale(name, (*first.prepare, *second.prepare), second.gpus)


MEDIUM = Medium(
    recipe=BERT_CONTINUED.recipe,
    scales={name: _both(name) for name in BERT_CONTINUED.scales},
    metrics=ByPart,
    sides=SQUAD.sides,
    scale_group=BERT_CONTINUED.scale_group,
    data_files=SQUAD.data_files,
    settings=SQUAD.settings,
    parts={
        "toy": (16, 16, 64),
        "mini": (8, 16, 32, 128),
        "small": (16, 32, 128, 128),
        "paper": (128,) * 10 + (512,) * 2,  # Table 6: epochs
    },
)
