"""Trained models that are measured on data of a folder of their own."""

from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils

import fairseq_plugins  # noqa: F401  (registers the models)


def load_trained(checkpoint: Path, state: dict[str, Any], data: Path) -> tuple[Any, Any, Any]:
    """(model, fairseq's configuration, task) of what `read_upgraded` read, for another folder."""
    # fairseq overrides nothing in a state that it is given.
    state["cfg"]["task"]["data"] = str(data)
    models, config, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], state=state
    )
    return models[0].eval(), config, task


def choose_device(*, cpu: bool) -> torch.device:
    """The GPU, unless there is none or the CPU is asked for."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
