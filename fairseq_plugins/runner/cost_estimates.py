"""Estimates of GPU-hours and disk space of planned runs."""

import math
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import count_symbols
from fairseq_plugins.common.tables import columns
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.runner.checkpoints import kept_names
from fairseq_plugins.runner.run_options import Retention
from fairseq_plugins.runner.slurm_job import Job

# Dictionary sizes of data that is not here yet.
_VOCABULARIES = {"wikitext-103": 267_744, "wmt14-en-de": 42_720}
_GPT2_SUBWORDS = 50_265
_SAMPLE = 64  # tokens of a sentence or pair of GLUE, estimated
_WINDOW = 384  # tokens of a window of SQuAD, as in the BERT paper


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one run: floating-point operations, forward and backward, and disk space.

    peak: most bytes of checkpoints during training. rest: bytes of checkpoints that stay.
    """

    operations: float
    peak: int
    rest: int


def cost_of(root: Path, planned: PlannedRun, keep: Retention = "all") -> Cost:
    """Estimate the cost of a run from its beginning, without the run that it starts from."""
    operations, peak, rest = 0.0, 0, 0
    for training in planned.trainings:
        vocabulary = vocabulary_of(root, training.data)
        operations += _operations(training.config, vocabulary)
        common = training.config["common"]
        # Of each parameter the weight and Adam's two moments.
        size = parameters(training.config["model"], vocabulary)
        size *= 10 if common["fp16"] or common["bf16"] else 12
        peak = max(peak, rest + size * (_files(training) + 1))  # one more while it is being written
        kept = kept_names(planned, training, keep)
        rest += size * (_files(training) if kept is None else len(kept))
    return Cost(operations, peak, rest)


def _files(training: Training) -> int:
    """Count the checkpoints of a training: the last one, the best one, and earlier ones."""
    config = training.config
    kept = int(config["checkpoint"]["keep_interval_updates"])
    before = max(0, kept) if config["checkpoint"]["save_interval_updates"] else 0
    return 1 + before + (0 if config["dataset"]["disable_validation"] else 1)


def peak_of(costs: Collection[Cost], at_once: int) -> int:
    """Return the most bytes of checkpoints if `at_once` runs (0: all) train at the same time."""
    more = sorted((cost.peak - cost.rest for cost in costs), reverse=True)
    return sum(cost.rest for cost in costs) + sum(more[: at_once or None])


def vocabulary_of(root: Path, data: Path) -> int:
    """Return the size of a data folder's dictionary; without the folder, the paper's."""
    for name in ("dict.txt", "input0/dict.txt", "dict.en.txt"):
        path = root / data / name
        if path.is_file():
            return count_symbols(path)
    return _VOCABULARIES.get(data.name, _GPT2_SUBWORDS)


def sides_of(model: Mapping[str, Any]) -> list[str]:
    """List the sides of a model that have layers: encoder, decoder or both."""
    return [side for side in ("encoder", "decoder") if model.get(f"{side}_layers")]


def _layers(model: Mapping[str, Any], side: str) -> int:
    """Count the weights of one side's layers: attention, feed-forward and cross-attention."""
    width, inner = int(model[f"{side}_embed_dim"]), int(model[f"{side}_ffn_embed_dim"])
    has_cross = side == "decoder" and "encoder" in sides_of(model)
    weights = (8 if has_cross else 4) * width**2 + 2 * width * inner
    return int(model[f"{side}_layers"]) * weights


def parameters(model: Mapping[str, Any], vocabulary: int) -> int:
    """Count the parameters of a model with shared embeddings, without position encodings."""
    width = int(model[f"{sides_of(model)[-1]}_embed_dim"])
    return vocabulary * width + sum(_layers(model, side) for side in sides_of(model))


def _operations(config: Mapping[str, Any], vocabulary: int) -> float:
    """Estimate operations: 2 per weight and token, and attention; times 3 with backward."""
    model, task = config["model"], config["task"]
    length = _length(task)
    per_token = 0.0
    for side in sides_of(model):
        width, heads = int(model[f"{side}_embed_dim"]), int(model[f"{side}_attention_heads"])
        kind = model.get(f"{side}_attention_type") or model.get("attention_type")
        reach = width // heads if kind == "linear" else length
        attention = 4 * reach * width * int(model[f"{side}_layers"])
        per_token += 2 * _layers(model, side) + attention
    predicted = float(task.get("mask_prob") or 1.0)
    if task["_name"] in ("language_modeling", "masked_lm", "translation"):
        per_token += 2 * predicted * vocabulary * int(model[f"{sides_of(model)[-1]}_embed_dim"])
    updates = int(config["optimization"]["max_update"])
    return 3 * per_token * (updates * tokens_per_update(config))


def _length(task: Mapping[str, Any]) -> int:
    if task.get("tokens_per_sample"):
        return int(task["tokens_per_sample"])
    return _WINDOW if task["_name"] == "squad" else _SAMPLE


def tokens_per_update(config: Mapping[str, Any]) -> float:
    """Return the tokens of an update on all devices; their limit if batches have one in tokens."""
    if config["dataset"]["batch_size"]:
        return float(total_batch(config) * _length(config["task"]))
    devices = int(config["distributed_training"]["distributed_world_size"])
    steps = int(config["optimization"]["update_freq"][0]) * devices
    return float(steps * int(config["dataset"]["max_tokens"]))


def check_rate(tflops: float) -> None:
    """Check a rate (ValueError: it is not a number above 0)."""
    if not (math.isfinite(tflops) and tflops > 0):
        raise ValueError(f"`--tflops` must be above 0, but is {tflops} instead.")


def hours(operations: float, tflops: float) -> float:
    """Return the GPU-hours of operations; tflops: 10^12 operations per second of a GPU."""
    return operations / (tflops * 1e12) / 3600


def describe(
    root: Path,
    tables: Sequence[Sequence[PlannedRun]],
    jobs: Sequence[Job],
    tflops: float,
    keep: Retention = "all",
    at_once: int = 0,
) -> list[str]:
    """Describe a submission: runs, GPU-hours and disk space of each table, and the jobs in order.

    tflops: 10^12 operations per second of a GPU. at_once: most runs at the same time, 0 for all.
    """
    plans = {one.run: one for planned in tables for one in planned}
    plans |= {before.run: before for one in list(plans.values()) for before in one.ancestors}
    # A run that is copied from another table costs nothing.
    made = [run for job in jobs if job.trains for run in job.runs if run in plans]
    costs = {run: cost_of(root, plans[run], keep) for run in dict.fromkeys(made)}
    rows = []
    for name in [*dict.fromkeys(run.table for run in plans), ""]:
        of_table = [cost for run, cost in costs.items() if name in ("", run.table)]
        work = sum(cost.operations for cost in of_table)
        rows.append(
            [
                name or "all",
                str(len(of_table)),
                f"{work / 1e15:.1f}",
                f"{hours(work, tflops):.1f}",
                f"{sum(cost.rest for cost in of_table) / 1e9:.1f}",
            ]
        )
    free, most = shutil.disk_usage(root).free / 1e9, peak_of(costs.values(), at_once) / 1e9
    heading = ["table", "runs to make", "10^15 operations", "GPU-hours", "GB that stay"]
    lines = columns([heading, *rows], left=1).splitlines()
    lines += [
        f"GPU-hours at {tflops:g} x 10^12 operations a second, without evaluation and starting; "
        "`--tflops` sets another rate.",
        f"Checkpoints are those of `--keep {keep}`, and at most {most:.1f} GB while "
        f"{at_once or 'all'} runs are trained at once. Free here: {free:.0f} GB.",
        f"Jobs in the order of submission: {len(jobs)}",
    ]
    return lines + [_describe_job(job) for job in jobs]


def _describe_job(job: Job) -> str:
    after = [*job.after, *(f"{name} (however it ends)" for name in job.finally_after)]
    gpus = f"{job.gpus} GPUs" if job.gpus else "CPU"
    gpus += ", a node for itself" if job.alone else ""
    shown = ", ".join(after) if len(after) < 4 else f"{len(after)} jobs"
    return f"  {job.name}: {gpus}" + (f", after {shown}" if after else "")
