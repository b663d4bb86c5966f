"""Loading of models from checkpoints that may come from untrusted sources.

Unpickling is safe, but fairseq builds any model and task that a checkpoint names, and some of them
evaluate options as Python code. So the names are checked first, against those that
`fairseq_plugins.registration` registers.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils

from fairseq_plugins.common.checkpoints import read_upgraded
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.modules.fitting import require_fit

# Tasks that fine-tune a model for classification or regression.
SENTENCE_TASKS = ("sentence_prediction", "pe_sentence_prediction")


def require_names(
    path: Path,
    checkpoint: Mapping[str, Any],
    models: Collection[str],
    tasks: Collection[str] | None = None,
) -> None:
    """Check that a checkpoint has one of the expected models and tasks.

    Args:
        path: path of the checkpoint, for error messages.
        checkpoint: result of `read_checkpoint`.
        models: registered names of the accepted models.
        tasks: registered names of the accepted tasks; None to skip this check.

    Raises:
        CheckpointError: with the checkpoint's name and the accepted ones.
    """
    config = checkpoint.get("cfg")
    if not isinstance(config, Mapping) or checkpoint.get("args") is not None:
        raise CheckpointError(
            f"{path} must be a checkpoint of {' or '.join(models)}, but stores no options of one"
        )
    for section, names in (("model", models), ("task", tasks)):
        name = config[section].get("_name") if isinstance(config.get(section), Mapping) else None
        if names is not None and name not in names:
            must, has = ("be a", "is a") if section == "model" else ("be of the task", "is of")
            raise CheckpointError(f"{path} must {must} {' or '.join(names)}, but {has} {name}")


def read_trained(
    path: Path, *, models: Collection[str], tasks: Collection[str] | None, **options: Any
) -> dict[str, Any]:
    """Read and check a checkpoint, replacing some of its task options.

    Args:
        path: path of the checkpoint.
        models: registered names of the accepted models.
        tasks: registered names of the accepted tasks; None for any.
        options: new values by name.

    Returns:
        The state for `build_trained`.

    Raises:
        CheckpointError: missing, damaged, of another model or task, or with weights that do not
            match its options.
    """

    def check(checkpoint: dict[str, Any]) -> None:
        require_names(path, checkpoint, models, tasks)
        require_fit(path, checkpoint)

    state = read_upgraded(path, check, **options)
    if "init_from" in state["cfg"]["model"]:
        state["cfg"]["model"]["init_from"] = None  # only used at the start of its training
    return state


def build_trained(
    path: Path, state: dict[str, Any], data: Path | None = None, *, task: Any = None
) -> tuple[Any, Any, Any]:
    """Build the model of a checkpoint for evaluation; return it with its config and task.

    Args:
        path: path of the checkpoint.
        state: result of `read_trained`; its weights are consumed.
        data: data folder to use instead of the training's.
        task: an existing task; None to set up the checkpoint's.

    Raises:
        ValueError: options that the model rejects, or weights that do not match them.
    """
    if data is not None:  # fairseq applies no overrides to a given state
        state["cfg"]["task"]["data"] = str(data)
    try:
        models, config, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], state=state, task=task
        )
    except RuntimeError as error:
        # PyTorch's first line names the class, the others the weights.
        lines = [line.strip() for line in str(error).splitlines()]
        reasons = " ".join(lines[1:] or lines)
        raise CheckpointError(
            f"{path} does not fit the model that it describes: {reasons}"
        ) from error
    return models[0].eval(), config, task


def choose_device(*, cpu: bool) -> torch.device:
    """Return the GPU; the CPU if there is none or ``cpu`` is set."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
