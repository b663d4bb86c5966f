"""Fine-tuning on SQuAD: Table 4 and Figure 7 of the BERT paper."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.common.dictionaries import check_same_dictionary
from fairseq_plugins.experiments.base import BERT_SETTINGS, Experiment, Metrics, Scale, Step, scales
from fairseq_plugins.experiments.mlm import BERT_CONTINUED
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Count, Loss, Percent, StartedMetrics, Strict
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.runs import Run
from fairseq_plugins.squad.folder import VERSIONS

RECIPES = {"v1": "squad_v1", "v2": "squad_v2"}  # by version
GROUP = "bert_figure7"  # folder of configs/: by scale the budgets of a part and of a fine-tuning
NAMES = {"1.1": "v1", "2.0": "v2"}
_SCALES = "scale/squad"  # Hydra's group of its sizes


def fine_tuning(
    version: str, name: str, overrides: tuple[str, ...] = (), after: str | None = None
) -> Variant:
    """Return the variant that fine-tunes on a version of SQuAD."""
    recipe, kind = RECIPES[version], f"SQuAD {version}"
    return Variant(name, recipe, overrides, kind, after=after, scale_group=_SCALES)


class Answers(StartedMetrics):
    """Exact match and F1 in per cent; of v2.0 None where a scale has v1.1 alone."""

    v1_exact: Percent
    v1_f1: Percent
    v2_exact: Percent | None = None
    v2_f1: Percent | None = None

    @model_validator(mode="after")
    def _f1_is_the_larger(self) -> Self:
        if (self.v2_exact is None) != (self.v2_f1 is None):
            raise ValueError("exact match and F1 of v2.0 must both be there, or neither")
        if self.v1_exact > self.v1_f1 or (self.v2_exact or 0) > (self.v2_f1 or 0):
            raise ValueError("exact matches must not be more than F1")
        return self


@dataclass(frozen=True)
class Squad(Experiment):
    """Fine-tuning of the row's continued pre-training on SQuAD, measured on dev sets."""

    def variants(self, scale: str) -> Sequence[Variant]:
        return [fine_tuning(NAMES[version], NAMES[version]) for version in _versions(scale)]

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        output = training.folder / "predictions.json"
        device = () if gpus else ("--cpu",)
        predict = [
            *("python", "-m", "fairseq_plugins.squad", "predict"),
            *("--path", checkpoint.as_posix(), "--data", training.data.as_posix()),
            *("--output", output.as_posix(), *device),
        ]
        gold = training.data / "raw" / "valid.json"
        evaluate = [
            *("python", "-m", "fairseq_plugins.squad", "evaluate"),
            *(gold.as_posix(), output.as_posix()),
        ]

        def read(log: Path) -> Metrics:
            scores = logs.read_json(log)
            (version,) = (v for v, recipe in RECIPES.items() if recipe == training.variant.recipe)
            return {f"{version}_{key}": round(scores[key], 4) for key in ("exact", "f1")}

        return [Step("predict.log", predict, lambda log: {}), Step("evaluate.log", evaluate, read)]

    def check_data(self, data: Path, pretraining: Path) -> None:
        check_same_dictionary(data / "dict.txt", pretraining / "dict.txt")

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        return {key: value for metrics in parts.values() for key, value in metrics.items()}

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        scores: dict[str, dict[str, float]] = {}
        share = _unanswerable(data)
        if share is not None:
            known = round(share, 4)  # as measured scores are
            scores = {metric: {"answers nothing": known} for metric in ("v2_f1", "v2_exact")}
        for folder, request in data.request.parts().items():
            version = NAMES.get(request.version or "")
            predictors = data.floors.part(folder).part("valid").parts() if version else {}
            for name, one in predictors.items():
                for key in ("exact", "f1"):
                    if (value := one.number(key)) is not None:
                        scores.setdefault(f"{version}_{key}", {})[name] = value
        return scores

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        unanswerable = _unanswerable(DataDescription.model_validate(results[0]["data"]))
        if unanswerable is None:
            return []
        silent = sum(abs(r["metrics"]["v2_f1"] - unanswerable) < 0.01 for r in results)
        return [
            "On v2.0 a model that answers no question at all reaches an exact match and an F1 of "
            f"{unanswerable:.2f}, the share of questions without an answer; {silent} of the "
            f"{len(results)} runs have exactly this F1."
        ]


def _unanswerable(data: DataDescription) -> float | None:
    """Return the share of v2.0's development questions without an answer, in per cent."""
    for folder, request in data.request.parts().items():
        valid = data.splits.part(folder).part("valid")
        answers = valid.part("answers").questions
        if request.version == "2.0" and valid.questions and answers is not None:
            return 100 * (1 - answers / valid.questions)
    return None


def _versions(scale: str) -> Sequence[str]:
    """Return the versions of SQuAD that a scale fine-tunes on."""
    return ("1.1",) if scale == PUBLISHED else VERSIONS  # docs/experiments.md has the trial of v2.0


def _commands(folder: str, scale: str = "") -> tuple[str, ...]:
    return tuple(command for v in _versions(scale) for command in COMMANDS[folder.format(v)])


SQUAD = Squad(
    recipe="squad_v1",
    scales=scales(
        Scale("toy", _commands("toy-squad-v{}")),
        Scale("mini", _commands("squad-v{}-mini")),
        Scale(PUBLISHED, (*COMMANDS["novels-start"], *_commands("squad-v{}-start", PUBLISHED))),
        Scale("small", _commands("squad-v{}-small"), gpus=1),
        Scale("paper", _commands("squad-v{}"), gpus=8),
    ),
    metrics=Answers,
    sides=("encoder",),
    scale_group=_SCALES,
    data_files=("data.json", "dict.txt"),
    origin=InitialCheckpoint("bert_continued"),
    origins={PUBLISHED: InitialCheckpoint("bert_adapted", same_seed=True)},
    settings=BERT_SETTINGS,
)


class PretrainingPart(Strict):
    """Scores after a part of the pre-training.

    samples: their length in tokens. updates: of all parts so far.
    """

    samples: Count
    updates: Count
    valid_loss: Loss
    v1_exact: Percent
    v1_f1: Percent
    v2_exact: Percent
    v2_f1: Percent


class ByPart(Answers):
    """Scores after the last part, after the last one with shorter samples, and after each."""

    short_v1_exact: Percent
    short_v1_f1: Percent
    short_v2_exact: Percent
    short_v2_f1: Percent
    parts: list[PretrainingPart] = Field(min_length=2)

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
class PretrainingInParts(Squad):
    """Pre-training from scratch in parts, fine-tuned on both versions of SQuAD after each part.

    parts: by scale the sample length of each part, `configs/bert_figure7/<scale>/samples_N`.
    """

    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    figure_note = (
        "A point for each part of the pre-training, mean over seeds; right of the vertical "
        "line the samples have their full length. The paper observed, without numbers, that "
        "left of it learnable sinusoids and relative embeddings are better than the learned "
        "embedding on both versions."
    )

    def variants(self, scale: str) -> Sequence[Variant]:
        variants: list[Variant] = []
        before = None
        for number, length in enumerate(self.parts[scale], start=1):
            name = f"part_{number}"
            own = (f"+{GROUP}/{scale}=samples_{length}",)
            kind = f"samples of {length}"
            variants.append(Variant(name, self.recipe, own, kind, after=before))
            tuned = (f"+{GROUP}/{scale}=squad",)
            variants += [fine_tuning(v, f"{name}_{v}", tuned, after=name) for v in RECIPES]
            before = name
        return variants

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        if training.variant.recipe == self.recipe:
            return []
        return super().steps(training, checkpoint, run, gpus)

    def measure(self, training: Training, folder: Path) -> Metrics:
        """Return the sample length, updates and best loss of a part; {} for a fine-tuning."""
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
        by_part = list(_by_part(parts))
        last = by_part[-1]
        short = [part for part in by_part if part["samples"] < last["samples"]][-1]
        return {
            **{key: last[key] for key in _answers(last)},
            **{f"short_{key}": short[key] for key in _answers(short)},
            "parts": by_part,
        }

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        scores = super().baselines(data, scale)
        return {**scores, **{f"short_{metric}": known for metric, known in scores.items()}}

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        lengths = sorted({tuple(p["samples"] for p in r["metrics"]["parts"]) for r in results})
        by_part = " / ".join(", ".join(map(str, parts)) for parts in lengths)
        warmups = sorted(
            {
                int(config["lr_scheduler"].get("warmup_updates", 0))
                for result in results
                for name, config in trainings_of(result["config"]).items()
                if name.startswith("samples")
            }
        )
        return [
            f"Pre-trained from scratch in parts, on samples of {by_part} tokens, each part from "
            "the best checkpoint of the one before. After each part the model is fine-tuned on "
            "both versions of SQuAD. Every part begins with a new optimiser and a warm-up of "
            f"{' / '.join(map(str, warmups))} updates, after which its learning rate is constant. "
            "The paper does not state its schedule, presumably one over all epochs.",
            "After short samples, positions beyond their length are untrained.",
            *super().caption_notes(results),
        ]


def _by_part(parts: Mapping[str, Metrics]) -> Iterator[Metrics]:
    """Yield the scores after each part, from the metrics of all trainings by name."""
    updates = 0
    for name, metrics in parts.items():
        if "samples" not in metrics:
            continue
        updates += metrics["updates"]
        answers = (parts[f"{name}_{version}"] for version in RECIPES)
        merged = {key: value for scores in answers for key, value in scores.items()}
        yield {**metrics, "updates": updates, **merged}


def _answers(part: Metrics) -> list[str]:
    return [key for key in part if key.startswith(tuple(RECIPES))]


def _both(name: str) -> Scale:
    """Return a scale that prepares the data of both pre-training and SQuAD."""
    first, second = BERT_CONTINUED.scales[name], SQUAD.scales[name]
    return Scale(name, (*first.prepare, *second.prepare), second.gpus)


BERT_FIGURE7 = BERT_CONTINUED.measured_by(
    PretrainingInParts,
    scales={name: _both(name) for name in BERT_CONTINUED.scales},
    metrics=ByPart,
    data_files=SQUAD.data_files,
    parts={
        "toy": (16, 16, 64),
        "mini": (8, 16, 32, 128),
        "small": (16, 32, 128, 128),
        "paper": (128,) * 10 + (512,) * 2,  # Table 6: epochs
    },
)
