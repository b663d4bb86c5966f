"""Rehearsal of scale paper on a machine without GPUs: models built, costs estimated.

Every model is built with the papers' vocabulary on PyTorch's meta device, which keeps shapes
without weights. This finds recipes that cannot be composed, and models that cannot be built, before
a cluster does.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401  (the models)
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.experiments.planned import PlannedRun
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.runner import cost_estimates

GIB = 2**30
# Bytes of a parameter in training. fairseq's half precision: weight and gradient in half and in
# full, and Adam's two moments; full precision: weight, gradient and the moments.
_BYTES_HALF, _BYTES_FULL = 20, 16
PRINTED = {"bert": 110e6}  # "All models have about 110M parameters", Section 4.1
# LRPE, Table 7: the columns by recipe, the settings by section and key of a recipe.
TABLE_7: Mapping[str, Mapping[str, float]] = {
    "wikitext103_lm": {
        "model.decoder_layers": 6,
        "model.decoder_embed_dim": 512,
        "model.decoder_attention_heads": 8,
        "model.decoder_ffn_embed_dim": 2048,
        "task.tokens_per_sample": 512,
        "total batch": 128,
        "optimization.max_update": 50_000,
        "lr_scheduler.warmup_updates": 4000,
        "optimization.lr": 5e-4,
        "vocabulary": 267_744,
    },
    "wikitext103_mlm": {
        "model.encoder_layers": 12,
        "model.encoder_embed_dim": 768,
        "model.encoder_attention_heads": 12,
        "model.encoder_ffn_embed_dim": 3072,
        "task.tokens_per_sample": 512,
        "total batch": 512,
        "optimization.max_update": 50_000,
        "lr_scheduler.warmup_updates": 3000,
        "optimization.lr": 5e-4,
        "vocabulary": 50_265,
    },
    "wmt14_en_de": {
        "model.encoder_layers": 6,
        "model.decoder_layers": 6,
        "model.decoder_embed_dim": 512,
        "model.decoder_attention_heads": 8,
        "model.decoder_ffn_embed_dim": 2048,
        "dataset.max_tokens": 4400,
        "optimization.max_update": 100_000,
        "lr_scheduler.warmup_updates": 4000,
        "optimization.lr": 7e-4,
        "vocabulary": 42_720,
    },
}


@dataclass(frozen=True)
class Rehearsed:
    """A row of a table as it would be trained.

    parameters: shared ones once. tokens: of an update. memory: estimated bytes on each GPU.
    gpu_hours: of all trainings. problem: why the model cannot be built; empty if it can.
    """

    row: str
    attention: str
    parameters: int = 0
    tokens: float = 0.0
    memory: float = 0.0
    gpu_hours: float = 0.0
    problem: str = ""


def rehearse(root: Path, planned: PlannedRun, tflops: float) -> Rehearsed:
    """Build the model of a run's first training, and estimate memory and GPU-hours of the run.

    tflops: 10^12 operations per second of a GPU.
    """
    run, training = planned.run, planned.trainings[0]
    vocabulary = cost_estimates.vocabulary_of(root, training.data)
    try:
        parameters = count_parameters(training, vocabulary)
    except Exception as error:  # the page shows whatever a builder raises
        return Rehearsed(run.row, run.attention, problem=f"{type(error).__name__}: {error}")
    return Rehearsed(
        run.row,
        run.attention,
        parameters,
        cost_estimates.tokens_per_update(training.config),
        memory_of(training.config, parameters, vocabulary),
        cost_estimates.hours(cost_estimates.cost_of(root, planned).operations, tflops),
    )


def count_parameters(training: Training, vocabulary: int) -> int:
    """Build a training's model on the meta device, and count its parameters."""
    model = build_on_meta(training.config, vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def build_on_meta(config: Mapping[str, Any], vocabulary: int) -> torch.nn.Module:
    """Build the model of a recorded configuration on the meta device.

    Raises ValueError: as the model's own `build_model`.
    """
    name = config["model"]["_name"]
    # Without the section "checkpoint" nothing is restored and no data is read.
    sections = {key: config[key] for key in ("common", "dataset", "optimization")}
    for key, schemas in (("model", MODEL_DATACLASS_REGISTRY), ("task", TASK_DATACLASS_REGISTRY)):
        schema = OmegaConf.structured(schemas[config[key]["_name"]])
        sections[key] = OmegaConf.merge(schema, config[key])
    root = OmegaConf.create(sections)
    dictionary, task = numbered_dictionary(vocabulary), config["task"]
    longest = task.get("tokens_per_sample") or task.get("max_positions")
    stand_in = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=dictionary,
        dictionary=dictionary,
        cfg=SimpleNamespace(tokens_per_sample=task.get("tokens_per_sample")),
        max_positions=lambda: longest,
    )
    with torch.device("meta"):
        built: torch.nn.Module = MODEL_REGISTRY[name].build_model(root.model, stand_in)
    return built


@functools.cache
def numbered_dictionary(size: int) -> Dictionary:
    """Return a dictionary of `size` symbols: fairseq's four, then w0, w1, ..."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def memory_of(config: Mapping[str, Any], parameters: int, vocabulary: int) -> float:
    """Estimate the bytes that a training takes on each GPU.

    Weights, gradients and Adam's moments; activations of each layer, by Korthikanti et al. (2022):
    34 C bytes a token in half precision with an FFN of 4 C, and 5 H T more where a softmax keeps
    its weights; logits where the criterion makes them.
    """
    model, dataset, common = config["model"], config["dataset"], config["common"]
    is_half = bool(common["fp16"] or common["bf16"])
    scale = 1 if is_half else 2
    length = int(config["task"].get("tokens_per_sample") or 128)
    tokens = int(dataset["max_tokens"] or int(dataset["batch_size"]) * length)
    activations = 0.0
    for side in cost_estimates.sides_of(model):
        layers = int(model[f"{side}_layers"])
        width, inner = int(model[f"{side}_embed_dim"]), int(model[f"{side}_ffn_embed_dim"])
        kind = model.get(f"{side}_attention_type") or model.get("attention_type")
        heads = int(model[f"{side}_attention_heads"])
        weights = 0 if kind == "linear" else 5 * heads * length
        activations += layers * tokens * (18 * width + 4 * inner + weights) * scale
    makes_logits = not str(config["criterion"]["_name"]).startswith("blockwise")
    predicted = tokens * float(config["task"].get("mask_prob") or 1.0)
    logits = 8.0 * predicted * vocabulary if makes_logits else 0.0
    return parameters * (_BYTES_HALF if is_half else _BYTES_FULL) + activations + logits


def compare_with_table_7(recipe: str, training: Training, vocabulary: int) -> list[list[str]]:
    """Return a line for each setting of LRPE's Table 7: name, the paper's, the recipe's, same."""
    lines = []
    for name, printed in TABLE_7[recipe].items():
        section, _, key = name.partition(".")
        if name == "vocabulary":
            ours: Any = vocabulary
        elif name == "total batch":
            ours = total_batch(training.config)
        else:
            ours = training.config[section][key]
        value = float(ours[0] if isinstance(ours, list) else ours)
        lines.append([f"`{name}`", f"{printed:g}", f"{value:g}", "" if value == printed else "no"])
    return lines


def page(
    rehearsed: Mapping[str, Sequence[Rehearsed]],
    settings: Mapping[str, Sequence[Sequence[str]]],
    tflops: float,
) -> str:
    """Write the page: settings against Table 7, by recipe, then the rows of each table."""
    parts = [
        "# Rehearsal of scale `paper`",
        "Made by `make rehearse-paper`. Every model is built with the papers' vocabulary, without "
        "numbers; nothing was trained for these tables. Memory is an estimate: fairseq's half "
        "precision with Adam, activations by Korthikanti et al. (2022) without fused attention, "
        "and logits where the criterion makes them. GPU-hours are counted at "
        f"{tflops:g} x 10^12 operations a second, without the trainings that a row starts from.",
        "## Settings against LRPE's Table 7",
    ]
    for recipe, lines in settings.items():
        parts += [f"**`{recipe}`**", markdown_table(["setting", "paper", "here", "same"], lines)]
    for name, rows in rehearsed.items():
        parts += [f"## {TABLES[name].source} (`{name}`)", *_notes(name, rows)]
        parts.append(markdown_table(_HEADER, [_line(one) for one in rows], left=2))
        parts += [f"`{r.row}` under {r.attention}: {r.problem}" for r in rows if r.problem]
    return "\n\n".join(parts) + "\n"


_HEADER = ["row", "attention", "parameters (M)", "tokens per update", "GiB per GPU", "GPU-hours"]


def _notes(name: str, rows: Iterable[Rehearsed]) -> list[str]:
    printed = PRINTED.get(name.partition("_")[0])
    known = [one.parameters / 1e6 for one in rows if one.parameters]
    if printed is None or not known:
        return []
    return [
        f"The paper says about {printed / 1e6:.0f} million parameters; here they are "
        f"{min(known):.1f} to {max(known):.1f} million, with RoBERTa's vocabulary."
    ]


def _line(one: Rehearsed) -> list[str]:
    if one.problem:
        return [f"`{one.row}`", one.attention, *[DASH] * 4]
    return [
        f"`{one.row}`",
        one.attention,
        f"{one.parameters / 1e6:.2f}",
        f"{one.tokens:,.0f}",
        f"{one.memory / GIB:.1f}",
        f"{one.gpu_hours:.1f}",
    ]
