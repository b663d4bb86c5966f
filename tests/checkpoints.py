"""Checkpoints of tiny models with all that fairseq writes into one, made without a training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.configs import (
    CheckpointConfig,
    CommonConfig,
    DatasetConfig,
    GenerationConfig,
    OptimizationConfig,
)
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401  (the options of models)
from fairseq_plugins.common.dictionaries import MASK
from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION

WIDTH, LONGEST, UPDATES = 16, 12, 5
WORDS = tuple("abcdefgh")
TASKS = {LM: "language_modeling", ROBERTA: "masked_lm", TRANSLATION: "translation"}
NAMES = {LM: ["dict.txt"], ROBERTA: ["dict.txt"], TRANSLATION: ["dict.en.txt", "dict.de.txt"]}
_SIDE = {"layers": 2, "embed_dim": WIDTH, "ffn_embed_dim": WIDTH, "attention_heads": 2}
_ENCODER, _DECODER = (
    {f"{side}_{name}": value for name, value in _SIDE.items()} for side in ("encoder", "decoder")
)
SIZES: Mapping[str, Mapping[str, Any]] = {
    LM: {
        **_DECODER,
        **{f"decoder_{end}_dim": WIDTH for end in ("input", "output")},
        "share_decoder_input_output_embed": True,
    },
    ROBERTA: _ENCODER,
    TRANSLATION: {**_ENCODER, **_DECODER},
}


class Task:
    """What a model asks of its task: options, and the dictionaries of its data."""

    def __init__(self, name: str, options: Any) -> None:
        self.cfg = options
        files = NAMES[name]
        self.source_dictionary, self.target_dictionary = (
            Dictionary.load(str(Path(options.data, file))) for file in (files[0], files[-1])
        )
        if name == ROBERTA:
            self.source_dictionary.add_symbol(MASK)


def configure(name: str, data: Path, **options: Any) -> Any:
    """fairseq's configuration of a training of a model, as far as it is read here."""
    sections = {
        "common": CommonConfig,
        "checkpoint": CheckpointConfig,
        "dataset": DatasetConfig,
        "generation": GenerationConfig,
        "optimization": OptimizationConfig,
    }
    config = OmegaConf.create({key: OmegaConf.structured(of) for key, of in sections.items()})
    kind, task = MODEL_DATACLASS_REGISTRY[name], TASK_DATACLASS_REGISTRY[TASKS[name]]
    sizes = {**SIZES[name], "_name": name, **options}
    config.model = OmegaConf.merge(OmegaConf.structured(kind()), sizes)
    about = {"_name": TASKS[name], "data": str(data)}
    if name == TRANSLATION:
        about |= {"source_lang": "en", "target_lang": "de"}
    else:
        about["tokens_per_sample"] = LONGEST
    config.task = OmegaConf.merge(OmegaConf.structured(task()), about)
    return config


def build(name: str, config: Any) -> Any:
    """The model of a configuration, which says its digests from now on."""
    return models.build_model(config.model, Task(name, config.task))


def make(name: str, data: Path, **options: Any) -> dict[str, Any]:
    """A checkpoint as fairseq's trainer makes it."""
    torch.manual_seed(1)
    config = configure(name, data, **options)
    model = build(name, config)
    history = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": UPDATES,
    }
    return {
        "args": None,
        "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 5}},
        "last_optimizer_state": {"state": {}, "param_groups": []},
    }


def write_data(name: str, folder: Path) -> Path:
    """A folder with a model's dictionaries and pieces, and files as far as they are looked for."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in NAMES[name]:
        (folder / file).write_text("".join(f"{word} 1\n" for word in WORDS))
    if name == ROBERTA:
        learn_gpt2_bpe(["the cat sat on the mat"], 3, folder)
    if name == TRANSLATION:
        (folder / "codes").write_text("#version: 0.2\na b\n")
    builder = MMapIndexedDatasetBuilder(str(folder / "valid.bin"), dtype=np.uint16)
    builder.add_item(torch.arange(4, 9).repeat(4))
    builder.finalize(str(folder / "valid.idx"))
    return folder
