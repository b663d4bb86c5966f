"""One training: its recipe, the model that it starts from, and its command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fairseq_plugins.common.checkpoints import BEST, LAST, read_checkpoint
from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.root import from_root, place
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.records.recipe import START, hydra_word, trainings_of

TEACHER = "criterion.teacher"  # of the criterion that copies hidden states
FINETUNE = "checkpoint.finetune_from_model"  # fairseq's option for a checkpoint to start from
# One task per node; fairseq starts a process per GPU. Without the last word those of other nodes
# would wait for one that has ended.
SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
# Options of `pe_roberta` that a start fixes for what starts from it.
SIZES = (
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"),
    *("encoder_normalize_before", "layer_norm_eps", "segments", "max_positions"),
)
PREPARE = as_typed("scripts/prepare_start.sh")  # makes the checkpoint that is the default


def train_command(recipe: str, overrides: Sequence[str], *, srun: bool = False) -> list[str]:
    """fairseq-hydra-train with Hydra's overrides."""
    return [
        *(SRUN if srun else ()),
        "fairseq-hydra-train",
        "--config-dir",
        "configs",
        "--config-name",
        recipe,
        *overrides,
    ]


def default_checkpoint() -> Path:
    """The checkpoint of the published start, relative to the root."""
    return place("checkpoints") / "start" / "model.pt"


@dataclass(frozen=True)
class PretrainedModel:
    """A checkpoint of `pe_roberta`, or of fairseq's `roberta`.

    Attributes:
        checkpoint: to be joined to the root.
        sha256: of the file, by which a result knows it; empty where the file is not there yet.
        sizes: options of the model that follow from its weights, which what starts from it shares;
            empty for those of the recipe.
    """

    checkpoint: Path = field(compare=False)
    sha256: str
    sizes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, root: Path, path: Path) -> Self:
        """The model in a file, relative to the root, where all commands run, or to this folder.

        Raises:
            ValueError: there is none.
        """
        found = next((one for one in (root / path, path.absolute()) if one.is_file()), None)
        if found is None:
            raise ValueError(f"`--start` must be a checkpoint, but {path} is missing.")
        return cls(from_root(found, root), sha256(found))

    @classmethod
    def published(cls, root: Path) -> Self:
        """The start of scale `published`, whether or not it is there."""
        path = default_checkpoint()
        return cls.read_sizes(root, path) if (root / path).is_file() else cls(path, "")

    @classmethod
    def read_sizes(cls, root: Path, path: Path) -> Self:
        """The model in a file, with its sizes.

        Raises:
            ValueError: there is none, or it is damaged or of another kind.
        """
        found = cls.read(root, path)
        checkpoint = read_checkpoint(root / found.checkpoint)
        require_names(root / found.checkpoint, checkpoint, [ROBERTA])
        options = checkpoint["cfg"]["model"]
        return replace(found, sizes={name: options[name] for name in SIZES if name in options})

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self | None:
        """What a recorded configuration says, None where its rows start from a model of ours."""
        found = (config.get(START) for config in trainings_of(recorded).values())
        return next(
            (cls(Path(s["checkpoint"]), s["sha256"], s.get("sizes", {})) for s in found if s), None
        )

    def record(self) -> dict[str, Any]:
        """As a configuration has it, without absolute paths."""
        path = self.checkpoint
        shown = Path(path.name) if path.is_absolute() else path
        sizes = {"sizes": dict(self.sizes)} if self.sizes else {}
        return {"checkpoint": shown.as_posix(), "sha256": self.sha256, **sizes}

    @property
    def text(self) -> str:
        return f"`{self.record()['checkpoint']}` (sha256 {self.sha256[:16]}...)"


@dataclass(frozen=True)
class Variant:
    """One of the trainings that a run consists of.

    Attributes:
        name: a word for its folder, empty where the run is this training alone.
        overrides: Hydra's.
        kind: what trainings with the same settings but for the learning rate share; one of them
            is recorded.
        after: of several stages, the name of the one before, whose checkpoint it starts from; None
            for what the run itself starts from.
        scale_group: Hydra's group of its recipe's scales, empty for that of the experiment.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()
    kind: str = ""
    learning_rate: float | None = None
    after: str | None = None
    scale_group: str = ""


@dataclass(frozen=True)
class Training:
    """A training with what its commands need.

    Attributes:
        folder: of its checkpoints and logs, relative to the repository.
        overrides: Hydra's.
        config: what `recipe.record` gives of it.
        data_elsewhere: the folder of its data, where that is not the recipe's.
    """

    variant: Variant
    folder: Path
    overrides: tuple[str, ...]
    config: dict[str, Any]
    srun: bool = False
    data_elsewhere: Path | None = None

    @property
    def max_update(self) -> int:
        """Zero where epochs end it."""
        return int(self.config["optimization"]["max_update"])

    @property
    def data(self) -> Path:
        """The folder of its data, to be joined to the root."""
        return self.data_elsewhere or Path(self.config["task"]["data"])

    @property
    def evaluated(self) -> str:
        """The checkpoint that is evaluated: the best on the validation set.

        Where training does without validation it is the last.
        """
        return LAST if self.config["dataset"]["disable_validation"] else BEST

    @property
    def command(self) -> list[str]:
        """It goes on from its own checkpoint_last.pt, where there is one."""
        return train_command(self.variant.recipe, self.overrides, srun=self.srun)

    def starting_from(self, other: "Training", option: str = FINETUNE) -> "Training":
        """With the weights of another training at its start.

        They are taken once; a training that is started again goes on from checkpoint_last.pt.

        Args:
            other: of which the evaluated checkpoint is taken.
            option: takes that checkpoint.
        """
        override = f"{option}={(other.folder / other.evaluated).as_posix()}"
        return replace(self, overrides=(*self.overrides, override))

    def with_sizes(self, start: PretrainedModel) -> "Training":
        """The training of a model with the sizes of the published one that it starts from."""
        model = self.config["model"]
        sizes = dict(start.sizes)
        if "max_positions" in sizes and "min_positions" in model:
            sizes["min_positions"] = sizes.pop("max_positions")  # the task sets the other one
        changed = {name: value for name, value in sizes.items() if model.get(name) != value}
        overrides = tuple(f"model.{name}={hydra_word(str(v))}" for name, v in changed.items())
        config = {**self.config, "model": {**model, **changed}}
        return replace(self, overrides=(*self.overrides, *overrides), config=config)

    def starting_published(self, start: PretrainedModel, option: str = "") -> "Training":
        """The training with a published model as its start, which its configuration names.

        Args:
            start: the published model; also the teacher, where hidden states are copied.
            option: takes the checkpoint; empty where an earlier stage has taken it.
        """
        word = hydra_word(start.checkpoint.as_posix())
        options = [option] if option else []
        if "teacher" in self.config["criterion"]:
            options.append(TEACHER)
        overrides = tuple(f"{name}={word}" for name in options)
        config = {**self.config, START: start.record()}
        return replace(self, overrides=(*self.overrides, *overrides), config=config)


@dataclass(frozen=True)
class InitialCheckpoint:
    """The run whose checkpoint others start from: of the table and row of these names.

    Attributes:
        row: None for the same row as theirs.
        option: takes the checkpoint: fairseq's `finetune_from_model`, where all but the head is
            the same, or `model.init_from` of `pe_roberta`, where the position encoding is another.
        same_seed: whether it is of the same seed as theirs; else it is of seed 1.
        may_be_published: whether a published model may take its place.
    """

    table: str
    row: str | None = None
    option: str = FINETUNE
    same_seed: bool = False
    may_be_published: bool = False
