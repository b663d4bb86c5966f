"""Fine-tuning on GLUE: Table 3 of LRPE, and Table 3 of the BERT paper.

LRPE prints accuracies everywhere, the BERT paper the official metric of each task. Its header says
"acc" for CoLA; but its caption says official metrics, and 60 would be less than the 69% accuracy of
always naming the larger class, so the column is Matthews' correlation. Its MNLI is the mismatched
part (Appendix E). WNLI is in no average (Appendix E), and LRPE does not have it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypeVar

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.common.dictionaries import check_same_dictionary
from fairseq_plugins.experiments.base import BERT_SETTINGS, Experiment, Metrics, Scale, Step, scales
from fairseq_plugins.experiments.glue_columns import (
    BERT_RATES,
    BERT_SOURCES,
    LRPE_RATES,
    LRPE_SOURCES,
    Source,
    recorded_scores,
)
from fairseq_plugins.experiments.glue_scores import Scores
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.glue.tasks import GLUE, HELD_OUT, TOY_GLUE, GlueTask
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.papers.bert import BERT_GLUE_TABLE
from fairseq_plugins.papers.lrpe import TABLE_3
from fairseq_plugins.papers.tables import AVERAGE, Table
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription, Numbers, SplitSizes
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.runs import Run

D = TypeVar("D", Numbers, SplitSizes)
MOST_SEEN = 10  # per cent of development examples seen in training; larger shares get a note


@dataclass(frozen=True, kw_only=True)
class Glue(Experiment):
    """Fine-tuning of the row's pre-trained model on every task with every learning rate.

    The learning rate is chosen on the validation data of the training: on the development set, as
    in the papers, or on `held_out`, a part of the training set, so that the development set is
    used for the reported scores alone.
    """

    sources: Mapping[str, Source]  # by column of the paper; scale toy has two generated tasks
    averaged: tuple[str, ...]  # columns of the average
    learning_rates: Mapping[str, tuple[float, ...]]  # by scale
    protocol: str = ""  # a file of configs/glue_protocol; empty: LRPE's, configs/glue/common.yaml
    required: tuple[str, ...] = ()  # tasks that a result must have
    earlier: Metrics | None = None  # of an earlier result of the run, whose scores stay

    def tasks(self, scale: str) -> list[GlueTask]:
        """Return the tasks of a scale."""
        if scale == "toy":
            return list(TOY_GLUE)
        wanted = {source.task for source in self.sources.values()}
        return [task for task in GLUE if task.name in wanted]

    def variants(self, scale: str) -> Sequence[Variant]:
        protocol = (f"+glue_protocol={self.protocol}",) if self.protocol else ()
        return [
            Variant(
                f"{task.name}-lr{rate:g}", task.config, protocol, kind=task.name, learning_rate=rate
            )
            for task in self.tasks(scale)
            for rate in self.learning_rates[scale]
        ]

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        (task,) = (t for t in self.tasks(run.scale) if t.name == training.variant.kind)
        subsets = [split.name for split in task.splits if split.name.startswith("valid")]
        # The data may lack a second development set, as MNLI's mismatched one.
        own = [subset for subset in subsets if self._is_wanted(task.name, subset, run.scale)]
        if training.config["dataset"]["valid_subset"] == HELD_OUT:
            own.append(HELD_OUT)
        return [_step(training, checkpoint, task, subset, run.seed, gpus) for subset in own]

    def with_missing_tasks(self, scale: str) -> Self:
        if len(self.learning_rates[scale]) > 1:
            raise ValueError(
                f"`--missing-tasks` must be left out at scale {scale}, where results do not keep "
                "all scores that choose the learning rate."
            )
        return replace(self, required=tuple(task.name for task in self.tasks(scale)))

    def lacks(self, metrics: Mapping[str, Any]) -> str:
        present = {_task_of(name) for name in metrics["tried"]}
        missing = [task for task in self.required if task not in present]
        return f"it has no score of {', '.join(missing)}" if missing else ""

    def also_measuring(self, metrics: Mapping[str, Any]) -> Self:
        return replace(self, earlier={**metrics}) if self.required else self

    def recorded(self, training: str) -> Metrics | None:
        if self.earlier is None or training not in self.earlier["tried"]:
            return None
        name = _task_of(training)
        (first,) = (task.metrics[0] for task in (*GLUE, *TOY_GLUE) if task.name == name)
        return {
            "task": name,
            "learning_rate": self.earlier["learning_rates"][name],
            "first": first,
            "subsets": recorded_scores(self.sources, self.earlier, training, name, first),
        }

    def _is_wanted(self, task: str, subset: str, scale: str) -> bool:
        if scale == "toy" or subset == "valid":
            return True
        return scale == "paper" and any(
            (source.task, source.subset) == (task, subset) for source in self.sources.values()
        )

    def _measured(self, source: Source, scale: str) -> list[str]:
        """Return the subsets that may fill a column at a scale, the preferred one first."""
        return [one for one in source.subsets if self._is_wanted(source.task, one, scale)]

    def check_data(self, data: Path, pretraining: Path) -> None:
        check_same_dictionary(data / "input0" / "dict.txt", pretraining / "dict.txt")

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        best: dict[str, Metrics] = {}
        for metrics in parts.values():
            score = self._score(metrics)
            if metrics["task"] not in best or score > self._score(best[metrics["task"]]):
                best[metrics["task"]] = metrics
        cells: dict[str, float] = {}
        replaced = []
        for label, source in self.sources.items():
            scores = best.get(source.task, {"subsets": {}})["subsets"]
            subset = next((s for s in source.subsets if source.metric in scores.get(s, {})), None)
            if subset is not None:
                cells[label] = scores[subset][source.metric]
                replaced += [label] if subset != source.subset else []
        averaged = [label for label in self.averaged if label in cells]
        values = [cells[label] for label in averaged]
        if not values:  # the generated tasks
            averaged, values = [*best], [self._score(metrics) for metrics in best.values()]
        return {
            **{label: round(value, 4) for label, value in cells.items()},
            AVERAGE: round(fmean(values), 4),
            "averaged": averaged,
            "replaced": replaced,
            "learning_rates": {task: metrics["learning_rate"] for task, metrics in best.items()},
            "tried": {name: self._score(metrics) for name, metrics in parts.items()},
        }

    def _score(self, metrics: Metrics) -> float:
        """Return the score that chooses the learning rate: the column's metric or the first one."""
        subsets = metrics["subsets"]
        chosen_on = subsets[HELD_OUT] if HELD_OUT in subsets else subsets["valid"]
        names = [s.metric for s in self.sources.values() if s.task == metrics["task"]]
        return float(chosen_on[names[0] if names else metrics["first"]])

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        baselines: dict[str, dict[str, float]] = {}
        for label, source in self.sources.items():
            splits = _of_task(data.floors, source.task)
            for subset in self._measured(source, scale):
                predictors = splits.part(subset).parts()
                numbers = {name: one.number(source.metric) for name, one in predictors.items()}
                if numbers:
                    known = {name: value for name, value in numbers.items() if value is not None}
                    baselines.setdefault(label, known)
        averaged = [baselines[label] for label in self.averaged if label in baselines]
        names = set.intersection(*map(set, averaged)) if averaged else set()
        means = {name: fmean(one[name] for one in averaged) for name in sorted(names)}
        if not means:
            return baselines
        best = fmean(max(one.values()) for one in averaged)
        return {**baselines, AVERAGE: {**means, "the best for each task": best}}

    def examples(self, data: DataDescription, scale: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for label, source in self.sources.items():
            if source.metric != "accuracy":
                continue
            for subset in self._measured(source, scale):
                count = _of_task(data.splits, source.task).part(subset).examples
                if count:
                    counts.setdefault(label, count)
        return counts

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        rates = {name.rpartition("-lr")[2] for r in results for name in r["metrics"]["tried"]}
        replaced = sorted({name for r in results for name in r["metrics"]["replaced"]})
        averaged = list(dict.fromkeys(n for r in results for n in r["metrics"]["averaged"]))
        held_out = [
            config["dataset"]
            for r in results
            for config in trainings_of(r["config"]).values()
            if config["dataset"].get("valid_subset") == HELD_OUT
        ]
        if held_out:
            by_epoch = not all(dataset.get("disable_validation") for dataset in held_out)
            what = "Rate and epoch are chosen" if by_epoch else "The rate is chosen"
            chosen = f" {what} on a part of the training set that is held out."
        else:
            chosen = " The rate is chosen on the development set itself." if len(rates) > 1 else ""
        notes = [
            f"Every task is fine-tuned with learning rate {', '.join(sorted(rates, key=float))}."
            f"{chosen} Scores are of the development set, in per cent; the average is over "
            f"{', '.join(averaged)}."
        ]
        for label in self.averaged:
            without = [r for r in results if label not in r["metrics"]]
            if label not in averaged and 0 < len(without) < len(results):
                shown = ", ".join(f"`{row}`" for row in sorted({r["row"] for r in without}))
                notes.append(
                    f"The averages here leave out {label}: runs of {shown} have no number for it. "
                    "The paper's averages include it, so differences between averages cannot be "
                    "compared with the paper's."
                )
        if replaced:
            notes.append(
                f"{', '.join(replaced)}: on the matched development set, since the data lacks the "
                "mismatched one."
            )
        measured = {label for r in results for label in self.sources if label in r["metrics"]}
        if measured and (lacking := [label for label in self.sources if label not in measured]):
            notes.append(f"This scale has no data for {', '.join(lacking)}.")
        return [*notes, *self._seen(results)]

    def _seen(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Describe the share of development examples whose first sentence occurs in training."""
        shares: dict[str, float] = {}
        for result in results:
            data = DataDescription.model_validate(result["data"])
            for label, source in self.sources.items():
                splits = _of_task(data.seen_first_sentences, source.task)
                measured = map(splits.number, self._measured(source, result["scale"]))
                share = next((one for one in measured if one is not None), None)
                if share is not None and share > MOST_SEEN:
                    shares.setdefault(label, share)
        if not shares:
            return []
        by_task = ", ".join(f"{label} {share:.0f} %" for label, share in shares.items())
        return [
            "Share of development examples whose first sentence also occurs in the training set, "
            f"if above {MOST_SEEN} %: {by_task}."
        ]


def _task_of(training: str) -> str:
    """Return the task of a training, which is named by task and learning rate."""
    return training.rpartition("-lr")[0]


def _of_task(described: D, task: str) -> D:
    """Return the description of a task, whose folder has the task's name."""
    tasks = {Path(folder).name: part for folder, part in described.parts().items()}
    return tasks.get(task) or type(described).model_validate({})


def _step(
    training: Training, checkpoint: Path, task: GlueTask, subset: str, seed: int, gpus: int
) -> Step:
    command = [
        *("python", "-m", "fairseq_plugins.glue", "evaluate"),
        *("--path", checkpoint.as_posix(), "--data", training.data.as_posix()),
        *("--task", task.name, "--subset", subset, "--seed", str(seed)),
        *(() if gpus else ("--cpu",)),
    ]

    def read(log: Path) -> Metrics:
        measured = logs.read_json(log)["metrics"]
        return {
            "task": task.name,
            "learning_rate": training.variant.learning_rate,
            "first": task.metrics[0],
            "subsets": {subset: measured},
        }

    return Step(f"evaluate-{subset}.log", command, read)


def _glue(
    table: Table,
    sources: Mapping[str, Source],
    learning_rates: Mapping[str, tuple[float, ...]],
    origin: InitialCheckpoint,
    mini: str,
    **more: Any,
) -> Glue:
    return Glue(
        recipe="glue_cola",
        scales=scales(
            Scale("toy", COMMANDS["toy-glue"]),
            Scale("mini", COMMANDS[mini]),
            Scale(PUBLISHED, (*COMMANDS["novels-start"], *COMMANDS["glue-start"])),
            Scale("small", COMMANDS["glue-small"], gpus=1),
            Scale("paper", COMMANDS["glue"], gpus=8),
        ),
        metrics=Scores,
        sides=("encoder",),
        scale_group="scale/glue",
        data_files=("data.json", "input0/train.bin", "input0/valid.bin"),
        sources=sources,
        averaged=table.average_of,
        learning_rates=learning_rates,
        origin=origin,
        **more,
    )


LRPE_GLUE = _glue(
    TABLE_3,
    LRPE_SOURCES,
    LRPE_RATES,
    InitialCheckpoint("table8"),
    "glue-1000",
    origins={PUBLISHED: InitialCheckpoint("lrpe_adapted", same_seed=True)},
)
BERT_GLUE = _glue(
    BERT_GLUE_TABLE,
    BERT_SOURCES,
    BERT_RATES,
    InitialCheckpoint("bert_continued"),
    "glue-mini",
    origins={PUBLISHED: InitialCheckpoint("bert_adapted", same_seed=True)},
    protocol="bert",
    settings=BERT_SETTINGS,
)
