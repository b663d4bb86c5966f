"""Check that training resumes from a checkpoint of the same model and data."""

import functools
import logging
import operator
from collections.abc import Mapping, Sequence
from filecmp import cmpfiles
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager
from omegaconf import OmegaConf, open_dict

from fairseq_plugins.common.checkpoints import LAST, read_checkpoint
from fairseq_plugins.common.errors import CheckpointError, checkpoint_given_by
from fairseq_plugins.common.vocabulary import (
    LABEL_DIGEST,
    Vocabulary,
    check_vocabulary,
    find_option,
)
from fairseq_plugins.modules.fitting import is_ours, require_fit
from fairseq_plugins.modules.identity import (
    TRANSLATION,
    Difference,
    ModelDescription,
    describe,
    describe_checkpoint,
    differences,
)
from fairseq_plugins.modules.stack import THEIR_TABLE

logger = logging.getLogger(__name__)

_MOST_UPDATES = 2**40
# Advice for recipes, which Hydra composes.
_BY_ROW = "recipes take the row's own unless checkpoint.finetune_from_model gives another"


def checkpoint_options(config: Any) -> Any:
    """Return fairseq's checkpoint options if the model is built for training, else None.

    Args:
        config: options of the model, as fairseq passes them.
    """
    root = config._get_root() if OmegaConf.is_config(config) else None
    # Options stored in a checkpoint describe an earlier training. fairseq sets this flag only on
    # configs that it reads from a checkpoint.
    if root is None or root._get_flag("allow_objects"):
        return None
    return root.get("checkpoint")


def resume_file(options: Any) -> Path:
    """Return the path of the checkpoint to resume from, which may not exist.

    It is ``--restore-file``, by default the last checkpoint of this run.

    Args:
        options: fairseq's checkpoint options.
    """
    suffix = options.get("checkpoint_suffix") or ""
    given = Path(options.restore_file)
    file = given.with_name(given.stem + suffix + given.suffix)
    return Path(options.save_dir, file) if options.restore_file == LAST else file


def initial_weights_file(options: Any) -> tuple[str, Path | None]:
    """Find the checkpoint whose weights training starts with.

    Args:
        options: fairseq's checkpoint options.

    Returns:
        The option that gives the file, and the file; None if it does not exist.
    """
    name, file = "restore_file", resume_file(options)
    if not file.exists() and options.restore_file == LAST:
        for start in ("continue_once", "finetune_from_model"):
            if options.get(start):
                name, file = start, Path(options[start])
                break
    return f"`{name}`", file if file.exists() else None


def check_restored(config: Any, vocabularies: Sequence[Vocabulary], labels: str = "") -> None:
    """Check that training starts from a checkpoint of the same model and dictionary.

    fairseq itself loads whatever matches by name and shape, without a warning. If the checkpoint
    already has all requested updates, no epoch will run.

    Args:
        config: options of the model to build.
        vocabularies: dictionaries of its token tables.
        labels: digest of the class labels in fine-tuning; empty without.

    Raises:
        CheckpointError: model or data differ from the checkpoint's, or the file is missing, damaged
            or lacks the training state.
    """
    options = checkpoint_options(config)
    if options is None:
        return
    option, file = initial_weights_file(options)
    given = options.get("finetune_from_model")
    if file is None and given and not PathManager.exists(given):
        raise missing_start(given)
    if file is None and options.restore_file != LAST:
        raise missing_start(options.restore_file)
    if file is not None:
        with checkpoint_given_by(option):
            _check_restored(config, vocabularies, labels, options, file)


def missing_start(path: str) -> CheckpointError:
    """Return the error of a missing checkpoint to start from."""
    return CheckpointError(
        "`finetune_from_model` or `restore_file` must be an existing checkpoint, but "
        f"{path} does not exist; {_BY_ROW}"
    )


def _check_restored(
    config: Any, vocabularies: Sequence[Vocabulary], labels: str, options: Any, file: Path
) -> None:
    checkpoint = read_checkpoint(file)
    if is_ours(checkpoint):
        require_fit(file, checkpoint)
    theirs = describe_checkpoint(file, checkpoint)
    ours = describe(config, config._get_root().get("task"))
    if differing := differences(theirs, ours):
        description = ", and ".join(
            f"the checkpoint has {d.has}, this run asks for {d.asks}" for d in differing
        )
        remedy = _remedy(options, ours, differing)
        raise CheckpointError(f"{file} is of another model: {description}; {remedy}")
    check_vocabulary(file, checkpoint, *vocabularies)
    saved_labels = find_option(checkpoint, "model", LABEL_DIGEST)
    # Weights may be reused for another task, but a resumed run must have its own labels and text.
    resumes = options.restore_file == LAST and file == resume_file(options)
    if resumes and saved_labels and labels and saved_labels != labels:
        raise CheckpointError(
            f"{file} was trained on other classes or on another order of them: label digest "
            f"{saved_labels}, but this data has {labels}; prepare the data as for that training, "
            "or use another --save-dir"
        )
    if resumes:
        _require_same_text(file, checkpoint, config._get_root().task)
    if file == resume_file(options) and not options.reset_optimizer:
        _require_state(file, checkpoint, with_data=not options.reset_dataloader)
        # Without the optimizer's state fairseq restarts the count of updates. That is wanted for
        # another training's file; this run's own file without it shows that training is complete.
        if resumes or checkpoint.get("last_optimizer_state") is not None:
            _skip_finished_training(config._get_root(), file, checkpoint)


def _require_state(file: Path, checkpoint: Mapping[str, Any], *, with_data: bool) -> None:
    """Check that a checkpoint has the state that fairseq needs to resume."""
    required: list[tuple[Any, ...]] = [("optimizer_history", -1, "num_updates")]
    if with_data:
        required.append(("extra_state", "train_iterator", "epoch"))
    for keys in required:
        try:
            value: Any = functools.reduce(operator.getitem, keys, checkpoint)
        except (LookupError, TypeError):
            value = None
        if not isinstance(value, int) or not 0 <= value < _MOST_UPDATES:
            raise CheckpointError(
                f"{file}: training cannot resume: {keys[0]} must have a number `{keys[-1]}`, but "
                f"has {value!r}"
            )
    optimizer = checkpoint.get("last_optimizer_state")
    if not isinstance(optimizer, Mapping | None):  # None if saved without optimizer state
        raise CheckpointError(
            f"{file}: training cannot resume: last_optimizer_state must be a dictionary, but is "
            f"{optimizer!r:.40}"
        )
    if optimizer and any(name.endswith(THEIR_TABLE) for name in checkpoint["model"]):
        raise CheckpointError(
            f"{file}: training cannot resume: the table of positions of fairseq's own model has "
            "rows for padding, and so has its optimizer state; give --reset-optimizer, or start "
            "from it with --finetune-from-model"
        )


def _require_same_text(file: Path, checkpoint: Mapping[str, Any], task: Any) -> None:
    """Check that the training data is unchanged, if the earlier data folder still exists.

    Raises:
        CheckpointError: the training data of the two folders differs.
    """
    data = [find_option(checkpoint, "task", "data"), getattr(task, "data", None)]
    if not all(data):
        return
    before, now = (Path(str(folders).split(":")[0]) for folders in data)
    if not (before.is_dir() and now.is_dir()) or before.samefile(now):
        return
    names = {
        str(path.relative_to(folder))
        for folder in (before, now)
        for pattern in ("train*", "*/train*")  # of the folder, or of GLUE's subfolders
        for path in folder.glob(pattern)
        if path.suffix in (".bin", ".idx")
    }
    _, differing, missing = cmpfiles(before, now, names, shallow=False)
    if differing or missing:
        raise CheckpointError(
            f"{file} was trained on {before}, whose {min(differing + missing)} differs from that "
            f"of {now}; use another --save-dir"
        )


def _skip_finished_training(config: Any, file: Path, checkpoint: Mapping[str, Any]) -> None:
    """Skip training if the checkpoint already has the requested number of updates.

    fairseq checks the number only after an update, so it would make one more.
    """
    done = checkpoint["optimizer_history"][-1]["num_updates"]
    requested = config.optimization.max_update
    if not 0 < requested <= done:
        return
    with open_dict(config):
        config.optimization.max_epoch = -1  # start no epoch
    logger.info("%s has %d of %d updates: nothing left to train", file, done, requested)


def _remedy(options: Any, ours: ModelDescription, differing: list[Difference]) -> str:
    if options.restore_file != LAST:
        other = "use another --restore-file"
    elif resume_file(options).exists():
        other = "use another --save-dir"
    else:
        other = "use another --finetune-from-model"
    only_encodings = all(d.about == "encoding" for d in differing)
    has_option = ours.model != TRANSLATION
    if has_option and only_encodings:
        other += ", or --init-from to start from it"
    return f"{other}; {_BY_ROW}" if "finetune" in other else other
