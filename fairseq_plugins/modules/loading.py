"""Checkpoints that commands of this package build models from.

A checkpoint comes from somewhere. Unpickling it is safe, but fairseq builds whatever model and task
it names, and some of those evaluate their options as Python. So names are looked at first. They are
known once `fairseq_plugins.registration` is imported.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils

from fairseq_plugins.common.checkpoints import read_upgraded
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.modules.fitting import require_fit

# Tasks of models that are fine-tuned for classes or a number.
SENTENCE_TASKS = ("sentence_prediction", "pe_sentence_prediction")


def require_names(
    path: Path,
    checkpoint: Mapping[str, Any],
    models: Collection[str],
    tasks: Collection[str] | None = None,
) -> None:
    """Refuse a checkpoint of another model or task than those that a command is for.

    Args:
        path: of the checkpoint, for the message.
        checkpoint: as `read_checkpoint` gives it.
        models: names of models, as they are registered.
        tasks: likewise; None for any, where the task is not set up.

    Raises:
        CheckpointError: with the names that it has and must have.
    """
    config = checkpoint.get("cfg")
    if not isinstance(config, Mapping) or checkpoint.get("args") is not None:
        raise CheckpointError(
            f"{path} must be a {' or '.join(models)}, but has no options as these write them"
        )
    for section, names in (("model", models), ("task", tasks)):
        name = config[section].get("_name") if isinstance(config.get(section), Mapping) else None
        if names is not None and name not in names:
            must = "be a" if section == "model" else "be of the task"
            has = "is a" if section == "model" else "is of"
            raise CheckpointError(f"{path} must {must} {' or '.join(names)}, but {has} {name}")


def read_trained(
    path: Path, *, models: Collection[str], tasks: Collection[str] | None, **options: Any
) -> dict[str, Any]:
    """A checkpoint that may be built, with options of its training replaced.

    Args:
        path: of the checkpoint.
        models: names of models that the command is for.
        tasks: likewise of tasks; None for any.
        options: new values.

    Returns:
        The state for `build_trained`.

    Raises:
        CheckpointError: missing, damaged, of another model or task, or with weights that are not
            those of the model that its options describe.
    """

    def check(checkpoint: dict[str, Any]) -> None:
        require_names(path, checkpoint, models, tasks)
        require_fit(path, checkpoint)

    state = read_upgraded(path, check, **options)
    if "init_from" in state["cfg"]["model"]:
        state["cfg"]["model"]["init_from"] = None  # of its training, which has begun long ago
    return state


def build_trained(
    path: Path, state: dict[str, Any], data: Path | None = None, *, task: Any = None
) -> tuple[Any, Any, Any]:
    """The model of a checkpoint, to be evaluated, its configuration and its task.

    Args:
        path: of the checkpoint.
        state: from `read_trained`; its weights are used up.
        data: the folder that takes the place of the training's.
        task: a task that is set up already; None for that of the checkpoint.

    Raises:
        ValueError: options that the model refuses, or weights that do not fit them.
    """
    if data is not None:  # fairseq overrides nothing in a state it is given
        state["cfg"]["task"]["data"] = str(data)
    try:
        models, config, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], state=state, task=task
        )
    except RuntimeError as error:
        # PyTorch's first line names the class, each further one weights.
        found = [line.strip() for line in str(error).splitlines()]
        reasons = " ".join(found[1:] or found)
        raise CheckpointError(
            f"{path} does not fit the model that it describes: {reasons}"
        ) from error
    return models[0].eval(), config, task


def choose_device(*, cpu: bool) -> torch.device:
    """The GPU, unless there is none or the CPU is asked for."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
