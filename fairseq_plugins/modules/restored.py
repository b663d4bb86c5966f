"""Whether the checkpoint that training goes on from is of the model that is asked for."""

import logging
from collections.abc import Mapping, Sequence
from filecmp import cmp
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError
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
    Identity,
    describe,
    describe_checkpoint,
    differences,
)

logger = logging.getLogger(__name__)

_LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file: the run's own
_MOST_UPDATES = 2**40


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


def own_file(options: Any) -> Path:
    """The file that training goes on from where it is there.

    It is ``--restore-file``, or by default the last that it has written itself.

    Args:
        options: fairseq's options of checkpoints.
    """
    suffix = options.get("checkpoint_suffix") or ""
    given = Path(options.restore_file)
    file = given.with_name(given.stem + suffix + given.suffix)
    return Path(options.save_dir, file) if options.restore_file == _LAST else file


def restored_file(options: Any) -> Path | None:
    """The file whose weights training begins with; None where there is none.

    Args:
        options: fairseq's options of checkpoints.
    """
    file = own_file(options)
    if not file.exists() and options.restore_file == _LAST:
        start = options.get("continue_once") or options.get("finetune_from_model")
        file = Path(start) if start else file
    return file if file.exists() else None


def check_restored(config: Any, vocabularies: Sequence[Vocabulary], labels: str = "") -> None:
    """Refuse to train a model on from a checkpoint of another one, or of another dictionary.

    fairseq loads whatever fits by names and shapes, and says little of what does not.

    Args:
        config: the options of the model that is being built.
        vocabularies: of its tables of tokens.
        labels: the digest of the classes that it is fine-tuned for; empty without.

    Where the checkpoint has all updates that are asked for, nothing is left to be trained.

    Raises:
        ValueError: the two differ in what their weights mean, with what each has; or a damaged
            file, or one that its training cannot go on from.
    """
    options = training_options(config)
    file = restored_file(options) if options is not None else None
    if file is None:
        return
    checkpoint = read_checkpoint(file)
    if is_ours(checkpoint):
        require_fit(file, checkpoint)
    theirs = describe_checkpoint(file, checkpoint)
    ours = describe(config, config._get_root().get("task"))
    found = differences(theirs, ours)
    if found:
        said = ", and ".join(
            f"the checkpoint has {d.has}, this run asks for {d.asks}" for d in found
        )
        raise ValueError(f"{file} is of another model: {said}; {_remedy(options, ours, found)}")
    check_vocabulary(file, checkpoint, *vocabularies)
    known = find_option(checkpoint, "model", LABEL_DIGEST)
    # Another task may begin with the weights of one, but a training that goes on has its own.
    goes_on = options.restore_file == _LAST and file == own_file(options)
    if goes_on and known and labels and known != labels:
        raise CheckpointError(
            f"{file} was trained for other classes, or for these in another order: their digest is "
            f"{known}, that of this data is {labels}; prepare the data as for the training, or use "
            "another --save-dir"
        )
    if goes_on:
        _require_same_text(file, checkpoint, config._get_root().task)
    if file == own_file(options) and not options.reset_optimizer:
        _require_state(file, checkpoint, with_data=not options.reset_dataloader)
        _train_no_further(config._get_root(), file, checkpoint)


def _require_state(file: Path, checkpoint: Mapping[str, Any], *, with_data: bool) -> None:
    """Refuse to go on from a checkpoint without what fairseq goes on with."""
    wanted: list[tuple[Any, ...]] = [("optimizer_history", -1, "num_updates")]
    if with_data:
        wanted.append(("extra_state", "train_iterator", "epoch"))
    for keys in wanted:
        value: Any = checkpoint
        try:
            for key in keys:
                value = value[key]
        except (LookupError, TypeError):
            value = None
        if not isinstance(value, int) or not 0 <= value < _MOST_UPDATES:
            raise CheckpointError(
                f"{file}: training cannot go on from it, since its {keys[0]} must have a number "
                f"`{keys[-1]}`, but has {value!r}"
            )
    optimizer = checkpoint.get("last_optimizer_state")
    if not isinstance(optimizer, Mapping | None):  # None without one, as it was saved
        raise CheckpointError(
            f"{file}: training cannot go on from it, since the state of its optimizer must be a "
            f"table, but is {optimizer!r:.40}"
        )


def _require_same_text(file: Path, checkpoint: Mapping[str, Any], task: Any) -> None:
    """Refuse to go on with another corpus, as far as that of the training is still in its place.

    Raises:
        CheckpointError: the training data of the two folders differs.
    """
    found = [find_option(checkpoint, "task", "data"), getattr(task, "data", None)]
    before, now = (Path(str(data).split(":")[0]) if data else None for data in found)
    if before is None or now is None or not (before.is_dir() and now.is_dir()):
        return
    if before.samefile(now):
        return
    ours, theirs = ({p.relative_to(d): p for p in _training_files(d)} for d in (now, before))
    for name in sorted({*ours, *theirs}):
        if (
            name not in ours
            or name not in theirs
            or not cmp(ours[name], theirs[name], shallow=False)
        ):
            raise CheckpointError(
                f"{file} was trained on {before}, whose {name} is another one than that of {now}; "
                "use another --save-dir"
            )


def _training_files(folder: Path) -> list[Path]:
    """The binarised training text of a data folder, or of the parts that GLUE's have."""
    return [
        path
        for pattern in ("train*", "*/train*")
        for path in folder.glob(pattern)
        if path.suffix in (".bin", ".idx")
    ]


def _train_no_further(config: Any, file: Path, checkpoint: Mapping[str, Any]) -> None:
    """Have fairseq make no update where the checkpoint has as many as are asked for.

    It looks at their number behind each update, so that a finished training would make one more.
    """
    if checkpoint.get("last_optimizer_state") is None:  # fairseq counts anew
        return
    done = checkpoint["optimizer_history"][-1]["num_updates"]
    asked = config.optimization.max_update
    if not 0 < asked <= done:
        return
    with open_dict(config):
        config.optimization.max_epoch = -1  # no epoch is to begin
    logger.info("%s has %d of %d updates: nothing is left to be trained", file, done, asked)


def _remedy(options: Any, ours: Identity, found: list[Difference]) -> str:
    if options.restore_file != _LAST:
        other = "use another --restore-file"
    elif own_file(options).exists():
        other = "use another --save-dir"
    else:
        other = "use another --finetune-from-model"
    only_encodings = all(d.about == "encoding" for d in found)
    has_option = ours.model != TRANSLATION
    return other + (", or --init-from to start from it" if has_option and only_encodings else "")
