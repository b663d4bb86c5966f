"""One training: its recipe, the model that it starts from, and its command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fairseq_plugins.common.checkpoints import BEST, LAST, read_checkpoint, weights_checksum
from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.root import from_root, root_folder
from fairseq_plugins.data.tokenizers import is_wordpiece
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.records.recipe import START, hydra_word, trainings_of

TEACHER = "criterion.teacher"  # option of the criterion that copies hidden states
FINETUNE = "checkpoint.finetune_from_model"  # fairseq's option for a checkpoint to start from
# One task per node; fairseq starts a process per GPU. Without the last option the other nodes would
# wait for a node whose process has ended.
SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
# Options of `pe_roberta` that must be those of the published model that it starts from.
SIZES = (
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"),
    *("encoder_normalize_before", "layer_norm_eps", "segments", "max_positions"),
)
PREPARE = typed_command("scripts/prepare_start.sh")  # writes `default_checkpoint`


def train_command(recipe: str, overrides: Sequence[str], *, srun: bool = False) -> list[str]:
    """Return the command fairseq-hydra-train with Hydra overrides."""
    command = ["fairseq-hydra-train", "--config-dir", "configs", "--config-name", recipe]
    return [*(SRUN if srun else ()), *command, *overrides]


def default_checkpoint() -> Path:
    """Return the default checkpoint of a published model, relative to the root."""
    return root_folder("checkpoints") / "start" / "model.pt"


@dataclass(frozen=True)
class PretrainedModel:
    """A published checkpoint of `pe_roberta` or fairseq's `roberta` that rows start from.

    checkpoint: relative to the root. weights: their checksum, which identifies the model in
    results; empty if the file is missing. sizes: model options that follow from its weights; empty
    for the recipe's. separators: number of `</s>` between the sentences of a pair.
    """

    checkpoint: Path = field(compare=False)
    weights: str
    sizes: Mapping[str, Any] = field(default_factory=dict, compare=False)
    separators: int = field(default=1, compare=False)

    @classmethod
    def load(cls, root: Path, path: Path) -> tuple[Self, dict[str, Any]]:
        """Read a file, relative to the root or to the working folder, and the checkpoint in it.

        Raises ValueError: the file is missing or damaged.
        """
        file = next((one for one in (root / path, path.absolute()) if one.is_file()), None)
        if file is None:
            raise ValueError(f"`--start` must be a checkpoint, but {path} is missing.")
        with checkpoint_given_by("`--start`"):
            checkpoint = read_checkpoint(file)
        return cls(from_root(file, root), weights_checksum(checkpoint["model"])), checkpoint

    @classmethod
    def read_sizes(cls, root: Path, path: Path) -> Self:
        """Read a file with the sizes of its model.

        Raises ValueError: the file is missing, damaged or of another architecture.
        """
        model, checkpoint = cls.load(root, path)
        with checkpoint_given_by("`--start`"):
            require_names(root / model.checkpoint, checkpoint, [ROBERTA])
        options = checkpoint["cfg"]["model"]
        sizes = {name: options[name] for name in SIZES if name in options}
        is_bert = str(sizes.get("segments")) == "pairs" or is_wordpiece(
            (root / model.checkpoint).parent
        )
        return replace(model, sizes=sizes, separators=1 if is_bert else 2)

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self | None:
        """Read the model from a recorded configuration; None if the run starts from another run."""
        for config in trainings_of(recorded).values():
            one = config.get(START)
            if isinstance(one, Mapping) and all(
                isinstance(one.get(key), str) for key in ("checkpoint", "weights")
            ):
                separators = one.get("separators", 1)
                return cls(
                    Path(one["checkpoint"]), one["weights"], one.get("sizes", {}), separators
                )
        return None

    def record(self) -> dict[str, Any]:
        """Return the entry for a recorded configuration, without absolute paths."""
        path = self.checkpoint
        shown = Path(path.name) if path.is_absolute() else path
        sizes = {"sizes": dict(self.sizes)} if self.sizes else {}
        separators = {"separators": self.separators} if self.separators != 1 else {}
        return {"checkpoint": shown.as_posix(), "weights": self.weights, **sizes, **separators}

    def within(self, tokens: int) -> int:
        """Return `tokens`, but at most the number of positions of the model."""
        return min(tokens, int(self.sizes.get("max_positions", tokens)))

    @property
    def text(self) -> str:
        return f"`{self.record()['checkpoint']}` (weights {self.weights[:16]}...)"


@dataclass(frozen=True)
class Variant:
    """One of the trainings that a run consists of."""

    name: str  # of its folder; empty for the run's own folder
    recipe: str  # name of the Hydra configuration
    overrides: tuple[str, ...] = ()  # Hydra's
    kind: str = ""  # shared by trainings that differ in the learning rate alone, recorded once
    learning_rate: float | None = None
    after: str | None = None  # training whose checkpoint it starts from; None: the run's own start
    scale_group: str = ""  # Hydra group of the scales, empty for that of the experiment


def in_stages(
    recipe: str,
    scale: str,
    names: Sequence[str],
    kind: str,
    *,
    last: tuple[str, ...] = (),
    every: tuple[str, ...] = (),
) -> list[Variant]:
    """Return a training in stages, each of which starts from the one before.

    names: files of configs/mlm_stage/<scale> for the stages before the last. kind: of the last
    stage. last, every: Hydra overrides of the last stage, and of all.
    """
    stages: list[Variant] = []
    before = None
    for name in names:
        own = (*every, f"+mlm_stage/{scale}={name}")
        stages.append(Variant(name, recipe, own, name.replace("_", " of "), after=before))
        before = name
    return [*stages, Variant("", recipe, (*every, *last), kind, after=before)]


@dataclass(frozen=True)
class Training:
    """A training with its folder and configuration."""

    variant: Variant
    folder: Path  # of its checkpoints and logs, relative to the root
    overrides: tuple[str, ...]  # Hydra's
    config: dict[str, Any]  # as `recipe.record` returns it
    srun: bool = False  # whether the command starts with srun
    data_elsewhere: Path | None = None  # folder of its data, if not the recipe's

    @property
    def max_update(self) -> int:
        """The number of updates, 0 if epochs end the training."""
        return int(self.config["optimization"]["max_update"])

    @property
    def data(self) -> Path:
        """The folder of its data, to be joined to the root."""
        return self.data_elsewhere or Path(self.config["task"]["data"])

    @property
    def log(self) -> Path:
        """The output of its command, relative to the root."""
        return self.folder / "train.log"

    @property
    def evaluated(self) -> str:
        """The checkpoint that is evaluated: the best on validation, or without it the last."""
        return LAST if self.config["dataset"]["disable_validation"] else BEST

    @property
    def checkpoint(self) -> Path:
        """The file of `evaluated`, relative to the root."""
        return self.folder / self.evaluated

    @property
    def command(self) -> list[str]:
        """The command, which resumes from checkpoint_last.pt if there is one."""
        return train_command(self.variant.recipe, self.overrides, srun=self.srun)

    def starting_from(self, other: "Training", option: str = FINETUNE) -> "Training":
        """Return the training that starts from another one's evaluated checkpoint.

        option: of fairseq, which loads it; a resumed training loads checkpoint_last.pt instead.
        """
        return self._loading([option], other.checkpoint)

    def _loading(self, options: Sequence[str], checkpoint: Path) -> "Training":
        """Return the training with options set to a checkpoint; fairseq's is recorded, too."""
        word, config = hydra_word(checkpoint.as_posix()), self.config
        if FINETUNE in options:
            shown = None if checkpoint.is_absolute() else checkpoint.as_posix()
            own = {**config["checkpoint"], "finetune_from_model": shown}
            config = {**config, "checkpoint": own}
        overrides = (*self.overrides, *(f"{option}={word}" for option in options))
        return replace(self, overrides=overrides, config=config)

    def with_sizes(self, start: PretrainedModel) -> "Training":
        """Return the training with the sizes and the pair separators of the published model."""
        model = self.config["model"]
        sizes = dict(start.sizes)
        if "max_positions" in sizes and "min_positions" in model:
            sizes["min_positions"] = sizes.pop("max_positions")  # the task sets the other one
        changed = {name: value for name, value in sizes.items() if model.get(name) != value}
        overrides = tuple(f"model.{name}={hydra_word(str(v))}" for name, v in changed.items())
        config = {**self.config, "model": {**model, **changed}}
        task = config["task"]
        if start.separators == 2 and "separator_token" in task:
            eos = SPECIAL_SYMBOLS.index("</s>")
            overrides += (f"task.separator_token={eos}",)
            config["task"] = {**task, "separator_token": eos}
        return replace(self, overrides=(*self.overrides, *overrides), config=config)

    def starting_published(self, start: PretrainedModel, option: str = "") -> "Training":
        """Return the training that starts from a published model, with a record of this model.

        The model is also the teacher if hidden states are copied. option: of fairseq, which loads
        it; empty if an earlier stage has loaded it.
        """
        options = [option] if option else []
        if "teacher" in self.config["criterion"]:
            options.append(TEACHER)
        training = self._loading(options, start.checkpoint)
        return replace(training, config={**training.config, START: start.record()})


@dataclass(frozen=True)
class InitialCheckpoint:
    """The run whose checkpoint other runs start from."""

    table: str
    row: str | None = None  # None for the row that starts from it
    option: str = FINETUNE  # if all but the head is the same; else pe_roberta's `model.init_from`
    same_seed: bool = False  # as the run that starts from it; else its seed is 1
    may_be_published: bool = False  # whether a published model may replace it
