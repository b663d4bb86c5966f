"""Fine-tuning on GLUE: Table 3 of LRPE, and Table 3 of the BERT paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq_plugins.glue.tasks import GLUE, TOY_GLUE, GlueTask
from fairseq_plugins.reproduce import logs
from fairseq_plugins.reproduce.commands import Run
from fairseq_plugins.reproduce.experiments.base import (
    Experiment,
    Metrics,
    Step,
    Training,
    Variant,
)

# Of the LRPE paper; ten times that for the few updates of a small model.
LEARNING_RATES = {
    "paper": (1e-5, 3e-5, 6e-5, 1e-4),
    "mini": (1e-4, 3e-4, 6e-4, 1e-3),
    "toy": (1e-3,),
}


@dataclass(frozen=True)
class Glue(Experiment):
    """Starts from the row's pre-trained model of Table 8; fine-tunes every task with every learning
    rate and keeps the best on the development set.

    tasks: by name; at scale toy the generated ones. metric: the one counted of every task, by
    default each task's own. left_out: tasks that the average leaves out.
    """

    tasks: tuple[str, ...] = tuple(task.name for task in GLUE)
    metric: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def pretraining(self) -> str:
        return "table8"

    def tasks_at(self, scale: str) -> list[GlueTask]:
        """The tasks of a scale."""
        known = GLUE if scale != "toy" else TOY_GLUE
        return [task for task in known if scale == "toy" or task.name in self.tasks]

    def variants(self, scale: str) -> Sequence[Variant]:
        return [
            Variant(
                f"{task.name}-lr{rate:g}",
                task.config,
                (f"optimization.lr=[{rate:g}]",),
                kind=task.name,
                learning_rate=rate,
            )
            for task in self.tasks_at(scale)
            for rate in LEARNING_RATES[scale]
        ]

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        (task,) = (t for t in self.tasks_at(run.scale) if t.name == training.variant.kind)
        subsets = [split.name for split in task.splits if split.name.startswith("valid")]
        return [_step(training, checkpoint, task, subset, run.seed, gpus) for subset in subsets]

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        best: dict[str, Metrics] = {}
        for metrics in parts.values():
            task = metrics["task"]
            if task not in best or metrics["score"] > best[task]["score"]:
                best[task] = metrics
        found: Metrics = {}
        for task, metrics in best.items():
            found |= {key: value for key, value in metrics.items() if key.startswith(f"{task}_")}
        return {
            **found,
            "average": self.average(best),
            "learning_rates": {task: metrics["learning_rate"] for task, metrics in best.items()},
            "tried": {name: metrics["score"] for name, metrics in parts.items()},
        }

    def average(self, best: Mapping[str, Metrics]) -> float:
        """Of the tasks' numbers, MNLI's two each counted as one."""
        numbers = [
            metrics[key]
            for task, metrics in best.items()
            if task not in self.left_out
            for key in metrics
            if key in (f"{task}_score", f"{task}_mismatched_score")
        ]
        return round(fmean(numbers), 4)

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        words = [
            f"every task with the learning rates {_rates(results)}; the best one on the "
            "development set counts, whose numbers these are"
        ]
        if self.left_out:
            words.append(f"the average leaves out {', '.join(self.left_out)}")
        return [f"Fine-tuning: {'; '.join(words)}. In per cent."]


def _rates(results: Sequence[Mapping[str, Any]]) -> str:
    rates = {name.rpartition("-lr")[2] for r in results for name in r["metrics"]["tried"]}
    return ", ".join(sorted(rates, key=float))


def _step(
    training: Training, checkpoint: Path, task: GlueTask, subset: str, seed: int, gpus: int
) -> Step:
    command = [
        "python",
        "-m",
        "fairseq_plugins.glue",
        "evaluate",
        "--path",
        checkpoint.as_posix(),
        "--data",
        training.data.as_posix(),
        "--task",
        task.name,
        "--subset",
        subset,
        "--seed",
        str(seed),
        *(() if gpus else ("--cpu",)),
    ]
    name = task.name if subset == "valid" else f"{task.name}_mismatched"

    def read(log: Path) -> Metrics:
        measured = logs.read_json(log)["metrics"]
        score = measured[task.metrics[0]]
        found = {f"{name}_{metric}": round(value, 4) for metric, value in measured.items()}
        found[f"{name}_score"] = score
        if subset == "valid":
            rate = training.variant.learning_rate
            found |= {"task": task.name, "score": score, "learning_rate": rate}
        return found

    return Step(f"evaluate-{subset}.log", command, read)
