"""Whether the checkpoint that training goes on from is of the model that is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import (
    LABEL_DIGEST,
    Vocabulary,
    check_vocabulary,
    find_option,
)
from fairseq_plugins.modules.identity import (
    TRANSLATION,
    Difference,
    Identity,
    describe,
    describe_checkpoint,
    differences,
)

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

    Raises:
        ValueError: the two differ in what their weights mean, with what each has; or a damaged
            file.
    """
    options = training_options(config)
    file = restored_file(options) if options is not None else None
    if file is None:
        return
    checkpoint = read_checkpoint(file)
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
