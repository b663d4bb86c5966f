"""A trained model with another encoding, or a longer table, when it is evaluated.

That is how rotations are stretched to longer texts: Position Interpolation, NTK-aware scaling and
YaRN take the weights of a model that was trained with RoPE. Nothing is trained.
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
from fairseq_plugins.modules.continued import OUR_TABLE, STACKS
from fairseq_plugins.modules.growing import GROWING
from fairseq_plugins.modules.identity import LM, ROBERTA
from fairseq_plugins.modules.loading import build_trained

STRETCH = "factor"  # the option of encodings that are stretched to longer sequences
_LONGEST = {LM: "max_target_positions", ROBERTA: "max_positions"}


@dataclass(frozen=True)
class Adaptation:
    """What of a model is another than in its training.

    Attributes:
        encoding: by name, under the attention of the training; empty for its own.
        options: of that encoding, as words.
        grow_table: how its learned table is made longer; empty for not at all.

    Raises:
        ValueError: an unknown encoding, option or way to grow, options of none, or both at once.
    """

    encoding: str = ""
    options: str = ""
    grow_table: str = ""

    def __post_init__(self) -> None:
        if self.options and not self.encoding:
            raise OptionError(f"--options must go with --encoding, but is {self.options!r} alone")
        if self.grow_table not in ("", *GROWING):
            known = ", ".join(sorted(GROWING))
            raise OptionError(f"--grow-table must be one of {known}, but is {self.grow_table!r}")
        if self.grow_table and self.encoding:
            raise OptionError(
                "--grow-table must be of the encoding that was trained, without --encoding, but is "
                f"beside {self.encoding!r}"
            )
        if self.encoding:
            split_options(self.encoding, parse_options(self.options))

    def __bool__(self) -> bool:
        """Whether anything is another."""
        return bool(self.encoding or self.grow_table)

    def apply(self, state: dict[str, Any], length: int, trained_length: int) -> None:
        """Enter it into the options of a checkpoint that `read_trained` has read, in place.

        A `factor` that is not given is that of the length: Dynamic Scaling (YaRN, Section 3.3).

        Args:
            state: of the checkpoint.
            length: of the sequences that are to be read.
            trained_length: of those of the training.
        """
        model = state["cfg"]["model"]
        if self.grow_table:
            model[_LONGEST[model["_name"]]] = max(length, trained_length)
        if not self.encoding:
            return
        words = parse_options(self.options)
        factor = max(1.0, length / trained_length)
        parts = expand_name(self.encoding)
        for part in parts:
            key = STRETCH if len(parts) == 1 else f"{part}.{STRETCH}"
            if STRETCH in get_entry(part).options and not {key, f"{part}.{STRETCH}"} & {*words}:
                words[key] = str(factor)
        model["position_encoding"] = self.encoding
        model["position_encoding_options"] = " ".join(f"{k}={v}" for k, v in words.items())

    def build(self, path: Path, state: dict[str, Any]) -> Any:
        """The model of a checkpoint into whose options this is entered, to be evaluated.

        Args:
            path: of the checkpoint.
            state: as `apply` left it; used up.

        Raises:
            ValueError: weights that are not those of the encoding, a table that cannot be grown so
                far, or none.
        """
        if self.grow_table:
            return _build_grown(path, state["cfg"], self.grow_table)
        try:
            return build_trained(path, state)[0]
        except CheckpointError as error:
            if not self.encoding:
                raise
            reason = f"--encoding must have the weights of the checkpoint, but {error}"
            raise OptionError(reason) from error


def _build_grown(path: Path, config: Any, how: str) -> Any:
    """The model as training would start it from the checkpoint, by `init_from`."""
    name = config.model["_name"]
    options = OmegaConf.create(OmegaConf.to_container(config.model, resolve=True))
    options.init_from, options.grow_table = str(path), how
    task = tasks.setup_task(config.task, from_checkpoint=True)
    model = task.build_model(options, from_checkpoint=True)
    place = f"{STACKS[name]}{OUR_TABLE}".rpartition(".")[0]
    if not isinstance(dict(model.named_modules()).get(place), Learned):
        raise OptionError(f"--grow-table must go with a learned table, but {path} has none")
    return model.eval()


AS_TRAINED = Adaptation()
