"""Fine-tuning on GLUE: Table 3 of LRPE, and Table 3 of the BERT paper."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq_plugins.data.dictionaries import check_same_dictionary
from fairseq_plugins.glue.tasks import GLUE, TOY_GLUE, GlueTask
from fairseq_plugins.papers.glue import (
    AVERAGE,
    BERT_TABLE_3,
    LRPE_TABLE_3,
    GlueTable,
    summarise,
)
from fairseq_plugins.reproduce.experiments.base import (
    Experiment,
    Metrics,
    Origin,
    Scale,
    Step,
    Training,
    Variant,
    scales,
)
from fairseq_plugins.reproduce.record import logs
from fairseq_plugins.reproduce.run.commands import Run

# Of each task at scale mini.
MINI_EXAMPLES = 640
MINI_DEVELOPMENT_EXAMPLES = 500

# Of the LRPE paper; two of them, ten times as high, for the few updates of a small model.
LRPE_RATES = {"paper": (1e-5, 3e-5, 6e-5, 1e-4), "mini": (3e-4, 1e-3), "toy": (1e-3,)}
# The BERT paper has one.
BERT_RATES = {"paper": (2e-5,), "mini": (6e-4,), "toy": (1e-3,)}


@dataclass(frozen=True)
class BertProtocol:
    """How the BERT paper fine-tunes on GLUE, where configs/glue/common.yaml is LRPE's: the file
    configs/glue_protocol/<name>.yaml, and what depends on a task's size."""

    name: str = "bert"
    epochs: int = 3
    batch_size: int = 32
    # At scale paper; smaller ones have models of fewer positions.
    max_positions: int = 128
    pretrained_positions: int = 512

    def overrides(self, task: GlueTask, scale: str) -> tuple[str, ...]:
        """Hydra's words for a task."""
        examples = min(task.train_examples, MINI_EXAMPLES if scale == "mini" else sys.maxsize)
        updates = self.epochs * -(-examples // self.batch_size)
        words = (f"+glue_protocol={self.name}", f"optimization.max_update={updates}")
        if scale != "paper":
            return words
        kept = f"+model.min_positions={self.pretrained_positions}"
        return (*words, f"task.max_positions={self.max_positions}", kept)


@dataclass(frozen=True, kw_only=True)
class Glue(Experiment):
    """Starts from the row's pre-trained model; fine-tunes every task with every learning rate and
    keeps the one that is best on the development set.

    columns: what the paper prints; at scale toy two generated tasks take their place.
    learning_rates: by scale. protocol: of the paper, None for LRPE's.
    """

    columns: GlueTable
    learning_rates: Mapping[str, tuple[float, ...]]
    protocol: BertProtocol | None = None

    def tasks(self, scale: str) -> list[GlueTask]:
        """The tasks of a scale."""
        if scale == "toy":
            return list(TOY_GLUE)
        wanted = {column.source.task for column in self.columns.columns}
        return [task for task in GLUE if task.name in wanted]

    def variants(self, scale: str) -> Sequence[Variant]:
        return [
            Variant(
                f"{task.name}-lr{rate:g}",
                task.config,
                self._protocol(task, scale),
                kind=task.name,
                learning_rate=rate,
            )
            for task in self.tasks(scale)
            for rate in self.learning_rates[scale]
        ]

    def _protocol(self, task: GlueTask, scale: str) -> tuple[str, ...]:
        return self.protocol.overrides(task, scale) if self.protocol else ()

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        (task,) = (t for t in self.tasks(run.scale) if t.name == training.variant.kind)
        subsets = [split.name for split in task.splits if split.name.startswith("valid")]
        # A second development set may be absent, as MNLI's mismatched one in a part of the data.
        own = [subset for subset in subsets if self._is_wanted(task.name, subset, run.scale)]
        return [_step(training, checkpoint, task, subset, run.seed, gpus) for subset in own]

    def _is_wanted(self, task: str, subset: str, scale: str) -> bool:
        if scale == "toy" or subset == "valid":
            return True
        return scale == "paper" and any(
            (column.source.task, column.source.subset) == (task, subset)
            for column in self.columns.columns
        )

    def check_data(self, data: Path, pretraining: Path) -> None:
        check_same_dictionary(data / "input0" / "dict.txt", pretraining / "dict.txt")

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        best: dict[str, Metrics] = {}
        for metrics in parts.values():
            score = self._score(metrics)
            if metrics["task"] not in best or score > self._score(best[metrics["task"]]):
                best[metrics["task"]] = metrics
        summary = summarise(self.columns, {task: found["subsets"] for task, found in best.items()})
        average = summary.average
        if average is None:  # the generated tasks
            average = fmean(self._score(metrics) for metrics in best.values())
        cells = {label: round(v, 4) for label, v in summary.cells.items() if v is not None}
        return {
            **cells,
            AVERAGE: round(average, 4),
            "averaged": list(summary.averaged) or list(best),
            "replaced": list(summary.replaced),
            "learning_rates": {task: metrics["learning_rate"] for task, metrics in best.items()},
            "tried": {name: self._score(metrics) for name, metrics in parts.items()},
        }

    def _score(self, metrics: Metrics) -> float:
        """By what learning rates of a task are compared: its column's metric, or its own first."""
        valid = metrics["subsets"]["valid"]
        names = [c.source.metric for c in self.columns.columns if c.source.task == metrics["task"]]
        return float(valid[names[0] if names else metrics["first"]])

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        rates = {name.rpartition("-lr")[2] for r in results for name in r["metrics"]["tried"]}
        replaced = sorted({name for r in results for name in r["metrics"]["replaced"]})
        averaged = list(dict.fromkeys(n for r in results for n in r["metrics"]["averaged"]))
        chosen = (
            "; the best one on the development set counts, whose numbers these are"
            if len(rates) > 1
            else "; the numbers are of the development set"
        )
        told = [
            f"Every task is fine-tuned with learning rate {', '.join(sorted(rates, key=float))}"
            f"{chosen}, in per cent. The average is over {', '.join(averaged)}."
        ]
        if replaced:
            told.append(
                f"{', '.join(replaced)}: matched instead of mismatched, which the data lacks."
            )
        return told


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
    columns: GlueTable,
    learning_rates: Mapping[str, tuple[float, ...]],
    origin: Origin,
    protocol: BertProtocol | None = None,
) -> Glue:
    return Glue(
        recipe="glue_cola",
        scales=scales(
            Scale("toy", ("scripts/prepare_toy_glue.sh",)),
            Scale(
                "mini",
                (
                    "scripts/prepare_glue.sh --from DIR --bpe data/novels-mini/bpe "
                    f"--max-train {MINI_EXAMPLES} --max-valid {MINI_DEVELOPMENT_EXAMPLES} "
                    "--output data/glue-mini",
                ),
            ),
            Scale("paper", ("scripts/prepare_glue.sh --bpe data/gpt2_bpe",), gpus=8),
        ),
        required=(AVERAGE, "learning_rates", "tried", "averaged", "replaced"),
        stacks=("encoder",),
        scale_group="scale/glue",
        data_files=("data.json", "input0/train.bin", "input0/valid.bin"),
        columns=columns,
        learning_rates=learning_rates,
        origin=origin,
        protocol=protocol,
    )


LRPE_GLUE = _glue(LRPE_TABLE_3, LRPE_RATES, Origin("table8"))
BERT_GLUE = _glue(BERT_TABLE_3, BERT_RATES, Origin("bert_continued"), BertProtocol())
