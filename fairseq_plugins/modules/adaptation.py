"""Evaluation of a trained model with another encoding or a longer position table.

Position Interpolation, NTK-aware scaling and YaRN stretch RoPE to longer texts this way, with the
weights as trained and no further training.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq import tasks
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import CheckpointError, OptionError
from fairseq_plugins.encodings import expand_name, get_entry, parse_options
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.registry import split_options
from fairseq_plugins.modules.continued import STACKS
from fairseq_plugins.modules.growing import GROWTH_METHODS
from fairseq_plugins.modules.identity import LM, ROBERTA
from fairseq_plugins.modules.loading import build_trained
from fairseq_plugins.modules.stack import OUR_TABLE

STRETCH = "factor"  # option of encodings that stretch positions to longer sequences
_LONGEST = {LM: "max_target_positions", ROBERTA: "max_positions"}


@dataclass(frozen=True)
class Adaptation:
    """Overrides applied to a trained model at evaluation time.

    Attributes:
        encoding: name of another encoding; empty for the trained one.
        options: options of that encoding, as ``name=value`` strings.
        grow_table: method of lengthening its learned table; empty to keep it.

    Raises:
        ValueError: unknown encoding, option or method, options without an encoding, or both an
            encoding and ``grow_table``.
    """

    encoding: str = ""
    options: str = ""
    grow_table: str = ""

    def __post_init__(self) -> None:
        if self.options and not self.encoding:
            raise OptionError(f"--options must go with --encoding, but is {self.options!r} alone")
        if self.grow_table not in ("", *GROWTH_METHODS):
            known = ", ".join(sorted(GROWTH_METHODS))
            raise OptionError(f"--grow-table must be one of {known}, but is {self.grow_table!r}")
        if self.grow_table and self.encoding:
            raise OptionError(
                "--grow-table applies to the trained encoding and must be without --encoding, but "
                f"is given with {self.encoding!r}"
            )
        if self.encoding:
            split_options(self.encoding, parse_options(self.options))

    def __bool__(self) -> bool:
        """Return whether any override is set."""
        return bool(self.encoding or self.grow_table)

    def apply(self, state: dict[str, Any], length: int, trained_length: int) -> None:
        """Write the overrides into the options of a state from `read_trained`, in place.

        A `factor` that is not given is set from the length: Dynamic Scaling (YaRN, Section 3.3).

        Args:
            state: state of the checkpoint.
            length: length of the sequences to evaluate.
            trained_length: length of the training sequences.
        """
        model = state["cfg"]["model"]
        if self.grow_table:
            model[_LONGEST[model["_name"]]] = max(length, trained_length)
        if not self.encoding:
            return
        options = parse_options(self.options)
        factor = max(1.0, length / trained_length)
        parts = expand_name(self.encoding)
        for part in parts:
            key = STRETCH if len(parts) == 1 else f"{part}.{STRETCH}"
            if STRETCH in get_entry(part).options and not {key, f"{part}.{STRETCH}"} & {*options}:
                options[key] = str(factor)
        model["position_encoding"] = self.encoding
        model["position_encoding_options"] = " ".join(f"{k}={v}" for k, v in options.items())

    def build(self, path: Path, state: dict[str, Any]) -> Any:
        """Build the model of a checkpoint for evaluation, with the overrides that `apply` wrote.

        Args:
            path: path of the checkpoint.
            state: state that `apply` changed; consumed.

        Raises:
            ValueError: the encoding needs other weights, or no table can be grown to the length.
        """
        if self.grow_table:
            return _build_grown(path, state["cfg"], self.grow_table)
        try:
            return build_trained(path, state)[0]
        except CheckpointError as error:
            if not self.encoding:
                raise
            reason = f"--encoding must need no other weights than the checkpoint has, but {error}"
            raise OptionError(reason) from error


def _build_grown(path: Path, config: Any, method: str) -> Any:
    """Build the model as training with `init_from` would initialise it."""
    name = config.model["_name"]
    options = OmegaConf.create(OmegaConf.to_container(config.model, resolve=True))
    options.init_from, options.grow_table = str(path), method
    task = tasks.setup_task(config.task, from_checkpoint=True)
    model = task.build_model(options, from_checkpoint=True)
    encoding = f"{STACKS[name]}{OUR_TABLE}".rpartition(".")[0]
    if not isinstance(dict(model.named_modules()).get(encoding), Learned):
        raise OptionError(f"--grow-table needs a learned table, but {path} has none")
    return model.eval()


AS_TRAINED = Adaptation()
