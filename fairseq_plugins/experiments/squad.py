"""Fine-tuning on SQuAD: Table 4 of the BERT paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.common.dictionaries import check_same_dictionary
from fairseq_plugins.experiments.base import BERT_SETTINGS, Experiment, Metrics, Scale, Step, scales
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Percent, StartedMetrics
from fairseq_plugins.records.runs import Run
from fairseq_plugins.squad.examples import VERSIONS

RECIPES = {"v1": "squad_v1", "v2": "squad_v2"}  # by version
NAMES = {"1.1": "v1", "2.0": "v2"}
_SCALES = "scale/squad"  # Hydra's group of its sizes


def fine_tuning(
    version: str, name: str, overrides: tuple[str, ...] = (), after: str | None = None
) -> Variant:
    """A training on a version of SQuAD; the rest as a variant's."""
    kind = f"SQuAD {version}"
    recipe = RECIPES[version]
    return Variant(name, recipe, overrides, kind, after=after, scale_group=_SCALES)


class Answers(StartedMetrics):
    """Exact matches and F1, in per cent; an exact match has an F1 of 1."""

    v1_exact: Percent
    v1_f1: Percent
    v2_exact: Percent
    v2_f1: Percent

    @model_validator(mode="after")
    def _f1_is_the_larger(self) -> Self:
        if self.v1_exact > self.v1_f1 or self.v2_exact > self.v2_f1:
            raise ValueError("exact matches must not be more than F1")
        return self


@dataclass(frozen=True)
class Squad(Experiment):
    """Starts from the row's continued pre-training; fine-tunes on both versions.

    Metrics: `v1_exact`, `v1_f1`, `v2_exact`, `v2_f1`, in per cent on the development set.
    """

    def variants(self, scale: str) -> Sequence[Variant]:
        return [fine_tuning(version, version) for version in RECIPES]

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        answers = training.folder / "predictions.json"
        device = () if gpus else ("--cpu",)
        predict = [
            *("python", "-m", "fairseq_plugins.squad", "predict"),
            *("--path", checkpoint.as_posix(), "--data", training.data.as_posix()),
            *("--output", answers.as_posix(), *device),
        ]
        gold = training.data / "raw" / "valid.json"
        evaluate = [
            *("python", "-m", "fairseq_plugins.squad", "evaluate"),
            *(gold.as_posix(), answers.as_posix()),
        ]

        def read(log: Path) -> Metrics:
            found = logs.read_json(log)
            (version,) = (v for v, recipe in RECIPES.items() if recipe == training.variant.recipe)
            return {f"{version}_{key}": round(found[key], 4) for key in ("exact", "f1")}

        return [
            Step("predict.log", predict, lambda log: {}),
            Step("evaluate.log", evaluate, read),
        ]

    def check_data(self, data: Path, pretraining: Path) -> None:
        check_same_dictionary(data / "dict.txt", pretraining / "dict.txt")

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        return {key: value for metrics in parts.values() for key, value in metrics.items()}

    def floors(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        share = _unanswerable(data)
        if share is not None:
            known = round(share, 4)  # as what is measured
            found = {metric: {"answers nothing": known} for metric in ("v2_f1", "v2_exact")}
        for folder, request in data.request.parts().items():
            version = NAMES.get(request.version or "")
            predictors = data.floors.part(folder).part("valid").parts() if version else {}
            for name, one in predictors.items():
                for key in ("exact", "f1"):
                    if (value := one.number(key)) is not None:
                        found.setdefault(f"{version}_{key}", {})[name] = value
        return found

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        unanswerable = _unanswerable(DataDescription.model_validate(results[0]["data"]))
        if unanswerable is None:
            return []
        silent = sum(abs(r["metrics"]["v2_f1"] - unanswerable) < 0.01 for r in results)
        return [
            f"On v2.0 a model that answers no question at all has an exact match and an F1 of "
            f"{unanswerable:.2f}, the share of questions without an answer; {silent} of the "
            f"{len(results)} runs have that F1."
        ]


def _unanswerable(data: DataDescription) -> float | None:
    """The share of v2.0's development questions that have no answer, in per cent."""
    for folder, request in data.request.parts().items():
        valid = data.splits.part(folder).part("valid")
        answers = valid.part("answers").questions
        if request.version == "2.0" and valid.questions and answers is not None:
            return 100 * (1 - answers / valid.questions)
    return None


def _commands(folder: str) -> tuple[str, ...]:
    return tuple(command for v in VERSIONS for command in COMMANDS[folder.format(v)])


SQUAD = Squad(
    recipe="squad_v1",
    scales=scales(
        Scale("toy", _commands("toy-squad-v{}")),
        Scale("mini", _commands("squad-v{}-mini")),
        Scale(PUBLISHED, (*COMMANDS["novels-start"], *_commands("squad-v{}-start"))),
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
