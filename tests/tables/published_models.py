"""What the models behind the published results compute before they are trained.

A page averages runs of many commits. Their configurations are compared when it is made; this is of
the code: numbers of each row's model on fixed tokens, kept in published_models.json, which change
where an encoding, an attention or a model does. `python -m tests.tables.published_models` writes
them anew, once the results whose model is another one are trained again.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.recipe_files import read_content

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_suffix(".json")
# One table for each kind of model; the others start from these or share them.
TABLES = ("table2", "table4", "table5", "table8", "floor_sweep", "bert_continued")
WORDS, BATCH, LENGTH = 600, 3, 24
SEED_OF_WEIGHTS, SEED_OF_DRAWS, SEED_OF_TOKENS = 1, 5, 7


def published() -> Iterator[tuple[str, Path]]:
    """Every row under every attention with results at mini, by its first seed."""
    for table in TABLES:
        for path in sorted((ROOT / "results" / table / "mini").glob("*-s1.json")):
            yield f"{table} {path.stem.removesuffix('-s1')}", path


def numbers_of(path: Path) -> list[float]:
    """Of the model that a result was trained from: losses, their spread, and the gradients."""
    first, *_ = trainings_of(read_content(path)["config"]).values()
    return numbers(first)


def numbers(training: Mapping[str, Any]) -> list[float]:
    model = build(training)
    tokens = torch.randint(
        5, WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(SEED_OF_TOKENS)
    )
    inputs: tuple[torch.Tensor, ...] = (tokens,)
    if training["model"]["_name"] == "pe_transformer":
        inputs = (tokens, torch.full((BATCH,), LENGTH), tokens.flip(1))
    with patch("fairseq_plugins.attention.base.draw_seed", lambda: SEED_OF_DRAWS):
        logits = model(*inputs)[0]
    log_probs = logits.float().log_softmax(-1)
    log_probs[..., 5:25].mean().backward()
    gradients = [p.grad.double().norm() for p in model.parameters() if p.grad is not None]
    some = [log_probs[0, -1, 9], log_probs[1, LENGTH // 2, 19], log_probs[2, 1, 30]]
    found = [log_probs.mean(), log_probs.std(), *some, torch.stack(gradients).norm()]
    return [float(f"{number.item():.5g}") for number in found]


def build(training: Mapping[str, Any]) -> torch.nn.Module:
    """The untrained model of a recorded training, for a dictionary of WORDS words."""
    dictionary = Dictionary()
    for word in range(WORDS - len(dictionary)):
        dictionary.add_symbol(str(word))
    name = training["model"]["_name"]
    schemas = {
        "model": MODEL_DATACLASS_REGISTRY[name],
        "task": TASK_DATACLASS_REGISTRY[training["task"]["_name"]],
        "checkpoint": CheckpointConfig,
    }
    config = OmegaConf.create({key: OmegaConf.structured(of) for key, of in schemas.items()})
    OmegaConf.set_struct(config, False)
    config = OmegaConf.merge(config, {key: training[key] for key in ("model", "task")})
    task = SimpleNamespace(
        cfg=config.task,
        source_dictionary=dictionary,
        target_dictionary=dictionary,
    )
    torch.manual_seed(SEED_OF_WEIGHTS)
    model: torch.nn.Module = MODEL_REGISTRY[name].build_model(config.model, task).eval()
    return model


def main() -> None:
    found = {name: numbers_of(path) for name, path in published()}
    lines = [f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
