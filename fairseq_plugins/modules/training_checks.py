"""Checks before training: option ranges and damaged data files."""

import math
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from fairseq import utils

from fairseq_plugins.common.binarised import check_split, is_mapped
from fairseq_plugins.common.checkpoints import option_of
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.vocabulary import LABEL_DIGEST
from fairseq_plugins.modules.restored import check_restored, checkpoint_options
from fairseq_plugins.modules.vocabulary import (
    labels_of,
    record_dictionary,
    record_option,
    vocabularies_of,
)

_LARGEST = 2**31 - 1
# fairseq option -> smallest and largest value; an option may be a list of values.
_BOUNDS: dict[str, tuple[float, float]] = {
    "dataset.batch_size": (1, _LARGEST),
    "dataset.batch_size_valid": (1, _LARGEST),
    "dataset.max_tokens": (1, _LARGEST),
    "dataset.max_tokens_valid": (1, _LARGEST),
    "dataset.num_workers": (0, _LARGEST),
    "optimization.update_freq": (1, _LARGEST),
    "optimization.max_update": (0, _LARGEST),  # 0: no limit
    "optimization.max_epoch": (0, _LARGEST),
    "optimization.clip_norm": (0, math.inf),
    "optimization.lr": (0, sys.float_info.max),
    "optimizer.weight_decay": (0, sys.float_info.max),
    "lr_scheduler.warmup_updates": (0, _LARGEST),
    "criterion.label_smoothing": (0, 1),
    "task.mask_prob": (0, 1),
    "common.log_interval": (1, _LARGEST),
}
_HALF_PRECISION = ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16")


def check_model(config: Any, task: Any, tables: Sequence[str]) -> None:
    """Check a model's training and its dictionaries, and record these in its options.

    Args:
        config: options of the model, as fairseq passes them.
        task: fairseq's task, with its dictionaries.
        tables: names of the token tables, source before target.

    Raises:
        OptionError: naming the option, its bounds and its value.
        DataError: a damaged file; the message begins with its path.
        CheckpointError: another model or other data than the checkpoint's.
    """
    if checkpoint_options(config) is not None:
        root = config._get_root()
        check_options(root)
        _check_data(root, task)
    vocabularies, labels = vocabularies_of(task, tables), labels_of(task)
    check_restored(config, vocabularies, labels)
    record_dictionary(config, vocabularies)
    if labels:
        record_option(config, LABEL_DIGEST, labels)


def check_options(config: Any) -> None:
    """Check fairseq's training options (OptionError: naming option, bounds and value)."""
    for name, (lowest, highest) in _BOUNDS.items():
        section, _, key = name.partition(".")
        given = option_of(config.get(section), key)
        values = [given] if isinstance(given, int | float | None) else given
        if not values:
            raise OptionError(f"`{name}` must be one number or more, but is {given} instead.")
        for value in values:
            if value is not None and not lowest <= value <= highest:
                bounds = f"from {lowest} to {highest}"
                if highest == sys.float_info.max:
                    bounds = f"at least {lowest} and finite"
                raise OptionError(f"`{name}` must be {bounds}, but is {value} instead.")
    _check_precision(config.get("common") or {})


def _check_precision(common: Any) -> None:
    for name in _HALF_PRECISION if common.get("cpu") else ():
        if common.get(name):
            raise OptionError(
                f"`common.{name}` must be off on a CPU (common.cpu), which computes in float32."
            )
    if common.get("tpu") and utils.xm is None:
        raise OptionError(
            "`common.tpu`, which --bf16 of fairseq-train turns on, must be off without torch_xla. "
            "On a GPU `fairseq-hydra-train common.bf16=true` trains in bfloat16."
        )


def _check_data(root: Any, task: Any) -> None:
    if "dataset" not in root:  # a partial config, without training data
        return
    data, implementation = (option_of(root.task, name) for name in ("data", "dataset_impl"))
    folder = Path(str(data or "").split(":")[0])
    if not data or str(implementation or "mmap") != "mmap":
        return
    # fairseq writes languages that it infers from the data into the task's copy of the options.
    options = getattr(task, "cfg", None) or root.task
    languages = [option_of(options, side) for side in ("source_lang", "target_lang")]
    dataset = root.get("dataset") or {}
    valid = [] if dataset.get("disable_validation") else str(dataset.get("valid_subset")).split(",")
    for split in (str(dataset.get("train_subset") or "train"), *valid):
        for pattern in (f"{split}*", f"input*/{split}*", f"label/{split}*"):
            for prefix in _prefixes(folder, pattern, languages):
                index = Path(f"{prefix}.idx")
                if not index.is_file() or is_mapped(index):
                    check_split(prefix, _symbols(languages[1], task, index))


def _prefixes(folder: Path, pattern: str, languages: Sequence[str | None]) -> list[Path]:
    """Return the paths of binarised files without suffix, for translation of both languages.

    Files of other language pairs in the same folder are left out.
    """
    prefixes = {
        path.with_suffix("") for end in ("bin", "idx") for path in folder.glob(f"{pattern}.{end}")
    }
    if all(languages):  # files are named SPLIT.SOURCE-TARGET.LANGUAGE
        pairs = tuple(f".{one}-{other}" for one, other in permutations(languages))
        stems = {path.with_suffix("") for path in prefixes if path.stem.endswith(pairs)}
        prefixes = {Path(f"{stem}.{language}") for stem in stems for language in languages}
    return sorted(prefixes)


def _symbols(target: str | None, task: Any, index: Path) -> int | None:
    """Return the dictionary size for a data file; None if unknown."""
    if index.parent.name == "label":
        return None
    is_target = index.stem.endswith(f".{target}")
    dictionary = task.target_dictionary if is_target else task.source_dictionary
    return None if dictionary is None else len(dictionary)
