"""Whether the checkpoint that training goes on from is of the model that is asked for."""

import logging
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fairseq_plugins.modules.continued import read_checkpoint
from fairseq_plugins.modules.identity import ROBERTA, Difference, describe, differences

logger = logging.getLogger(__name__)

_LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file: the run's own


def training_options(config: Any) -> Any:
    """fairseq's options of checkpoints, where a model is built to be trained; otherwise None.

    Args:
        config: the options of the model that is being built, as fairseq hands them over.
    """
    root = config._get_root() if OmegaConf.is_config(config) else None
    # What a checkpoint holds is about the training that wrote it. fairseq sets this flag on
    # configurations that it reads from one, and on no others.
    if root is None or root._get_flag("allow_objects"):
        return None
    return root.get("checkpoint")


def restored_file(options: Any) -> Path | None:
    """The file whose weights training begins with; None where there is none yet.

    Args:
        options: fairseq's options of checkpoints.
    """
    suffix = options.get("checkpoint_suffix") or ""
    given = Path(options.restore_file)
    file = given.with_name(given.stem + suffix + given.suffix)
    if options.restore_file == _LAST:
        file = Path(options.save_dir, file)
        if not file.exists():
            start = options.get("continue_once") or options.get("finetune_from_model")
            file = Path(start) if start else file
    return file if file.exists() else None


def check_restored(config: Any) -> None:
    """Refuse to train a model on from a checkpoint of another one.

    fairseq loads whatever fits by names and shapes, and says little of what does not.

    Args:
        config: the options of the model that is being built.

    Raises:
        ValueError: the two differ in what their weights mean, with what each has.
    """
    options = training_options(config)
    file = restored_file(options) if options is not None else None
    if file is None:
        return
    try:
        checkpoint = read_checkpoint(file)
    except ValueError as error:
        logger.warning("%s cannot be compared with what is asked for: %s", file, error)
        return
    saved = checkpoint.get("cfg") or {}
    theirs = saved.get("model") or checkpoint.get("args")
    if theirs is None:
        logger.warning("%s does not say what model it is of", file)
        return
    ours = describe(config, config._get_root().get("task"))
    found = differences(describe(theirs, saved.get("task")), ours)
    if found:
        said = ", and ".join(
            f"the checkpoint has {d.theirs}, this run asks for {d.ours}" for d in found
        )
        raise ValueError(f"{file} is of another model: {said}; {_remedy(options, ours, found)}")


def _remedy(options: Any, ours: Any, found: list[Difference]) -> str:
    if options.restore_file != _LAST:
        other = "use another --restore-file"
    elif Path(options.save_dir, _LAST).exists():
        other = "use another --save-dir"
    else:
        other = "use another --finetune-from-model"
    only_encodings = all(d.about == "encoding" for d in found)
    start = ", or --init-from to start from it" if ours.model == ROBERTA and only_encodings else ""
    return other + start
