"""What the runs of a table are: which recipes train them, and how they are measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.reproduce.run.checkpoints import BEST, LAST
from fairseq_plugins.reproduce.run.commands import Run, train_command

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """A size of an experiment; its model and budget are in configs/<scale group>/<name>.yaml.

    gpus: what one run takes by default, 0 for a CPU. prepare: the commands that make its data.
    """

    name: str
    prepare: tuple[str, ...]
    gpus: int = 0


def scales(*found: Scale) -> dict[str, Scale]:
    """By name, from the smallest on."""
    return {scale.name: scale for scale in found}


@dataclass(frozen=True)
class Variant:
    """One of the trainings that a run consists of.

    name: a word for its folder, empty where the run is this training alone. overrides: Hydra's.
    kind: what trainings with the same settings but for the learning rate share; one of them is
    recorded.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()
    kind: str = ""
    learning_rate: float | None = None


@dataclass(frozen=True)
class Training:
    """A training with what its commands need.

    folder: of its checkpoints and logs, relative to the repository. overrides: Hydra's.
    config: what `recipe.record` gives of it.
    """

    variant: Variant
    folder: Path
    overrides: tuple[str, ...]
    config: dict[str, Any]
    srun: bool = False

    @property
    def max_update(self) -> int:
        """Zero where epochs end it."""
        return int(self.config["optimization"]["max_update"])

    @property
    def data(self) -> Path:
        """The folder of its data, relative to the repository."""
        return Path(self.config["task"]["data"])

    @property
    def evaluated(self) -> str:
        """The checkpoint that is evaluated: the best on the validation set, or the last where
        training does without validation."""
        return LAST if self.config["dataset"]["disable_validation"] else BEST

    def command(self, restore: Path | None = None) -> list[str]:
        """fairseq-hydra-train; `restore` is a checkpoint other than checkpoint_last.pt."""
        overrides = list(self.overrides)
        if restore:
            # fairseq takes one of the two, and a recipe that has the other must have a word for it.
            if any(word.startswith(f"{Origin.option}=") for word in overrides):
                overrides.append(f"{Origin.option}=null")
            overrides.append(f"checkpoint.restore_file={restore.as_posix()}")
        return train_command(self.variant.recipe, overrides, srun=self.srun)


@dataclass(frozen=True)
class Step:
    """A command that measures, the name of its log, and what reads metrics there.

    read raises ValueError where the log does not say them.
    """

    log: str
    command: list[str]
    read: Callable[[Path], Metrics]


@dataclass(frozen=True)
class Side:
    """A stack of layers as far as a position encoding has to fit it."""

    attention_type: str
    position_encoding: str
    options: str
    causal: bool
    num_heads: int
    head_dim: int


@dataclass(frozen=True)
class Origin:
    """The run whose checkpoint others start from: of the table and row of these names.

    row: None for the same row as theirs. option: takes the checkpoint: fairseq's
    `finetune_from_model`, where all but the head is the same, or `model.init_from` of
    `pe_roberta`, where the position encoding is another.
    """

    table: str
    row: str | None = None
    option: str = "checkpoint.finetune_from_model"

    def start(self, training: Training, checkpoint: Path) -> Training:
        """The training with the checkpoint's weights at its start.

        They are taken once; a training that is started again goes on from checkpoint_last.pt.
        """
        override = f"{self.option}={checkpoint.as_posix()}"
        return replace(training, overrides=(*training.overrides, override))


@dataclass(frozen=True)
class Experiment:
    """How the runs of some tables are trained and measured.

    scale_group: Hydra's group of its scales. required: metrics without which a result is not
    complete. stacks: the sides (``encoder``, ``decoder``) whose layers a run's encoding is in.
    data_files: what each folder of data must hold. origin: what each run starts from, None for
    weights drawn from its seed.
    """

    recipe: str
    scales: Mapping[str, Scale]
    required: tuple[str, ...]
    stacks: tuple[str, ...]
    scale_group: str = "scale"
    data_files: tuple[str, ...] = DATA_FILES
    origin: Origin | None = None

    def attention(self, word: str) -> dict[str, str]:
        """The model's options that a run's attention sets."""
        return {"attention_type": word}

    def variants(self, scale: str) -> Sequence[Variant]:
        """The trainings of a run; without any, the one that it starts from is measured."""
        return [Variant("", self.recipe)]

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        """What measures a training, paths relative to the repository."""
        raise NotImplementedError

    def measure(self, training: Training, folder: Path) -> Metrics:
        """Metrics that the training's folder holds without another command."""
        return {}

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        """The metrics of a run from those of its trainings by name."""
        (only,) = parts.values()
        return dict(only)

    def sides(self, model: Mapping[str, Any]) -> list[Side]:
        """The stacks of a composed model."""
        return [self._side(model, stack) for stack in self.stacks]

    def _side(self, model: Mapping[str, Any], stack: str) -> Side:
        def of(option: str) -> Any:
            own = model.get(f"{stack}_{option}")
            return model.get(option, "") if own is None else own

        # As the model does: a side with an encoding of its own does not inherit options.
        is_common = of("position_encoding") == model.get("position_encoding")
        options = model.get(f"{stack}_position_encoding_options")
        if options is None:
            options = model.get("position_encoding_options", "") if is_common else ""
        heads = int(model[f"{stack}_attention_heads"])
        return Side(
            of("attention_type"),
            of("position_encoding"),
            options,
            stack == "decoder",
            heads,
            int(model[f"{stack}_embed_dim"] or model["encoder_embed_dim"]) // heads,
        )

    def check_data(self, data: Path, pretraining: Path) -> None:
        """Refuse data that does not go with that of the pre-training, as another dictionary.

        Raises:
            ValueError: naming the file and the line.
        """

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Sentences of a table's caption beside those that all tables have."""
        return []

    def comparability(self, scale: str) -> str:
        """What a reader may compare with the paper's numbers."""
        if scale == "paper":
            return ""
        return (
            "The data, the model and the budget are far smaller than the paper's, so the numbers "
            "and the differences from the paper's are expected to be far off; what can be "
            "compared is the order of the rows. What differs from Table 7 is the same for every "
            "row."
        )
