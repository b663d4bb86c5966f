"""What the runs of a table are: which recipes train them, and how they are measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import MetricsSchema
from fairseq_plugins.records.runs import Run

Metrics = dict[str, Any]

# Where the papers say with what they train.
LRPE_SETTINGS, BERT_SETTINGS = "LRPE's Table 7", "the BERT paper's Table 6"


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


def another_run(table: str) -> str:
    """Says of models that a table has, too, and that were trained anew, what this changes.

    Other code or another processor rounds otherwise, and trainings drift apart from there.
    """
    return (
        f"the same row and seed in {table} is another run, and their numbers may differ by as much "
        "as those of two seeds"
    )


@dataclass(frozen=True)
class Step:
    """A command that measures, the name of its log, and what reads metrics there.

    read raises ValueError where the log does not say them.
    """

    log: str
    command: list[str]
    read: Callable[[Path], Metrics]


@dataclass(frozen=True)
class Stack:
    """A stack of layers as far as a position encoding has to fit it."""

    attention_type: str
    position_encoding: str
    options: str
    causal: bool
    num_heads: int
    width: int

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True)
class Experiment:
    """How the runs of some tables are trained and measured.

    Attributes:
        scale_group: Hydra's group of its scales.
        metrics: what a run measures, and what its numbers may be.
        sides: those (``encoder``, ``decoder``) whose layers a run's encoding is in.
        data_files: what each folder of data must hold.
        origin: what each run starts from, None for weights drawn from its seed.
        origins: by scale, what runs start from there in place of `origin`.
        leaves: files in a run's folder, beside checkpoints, that figures are of.
        settings: where the paper says with what it trains.
        shown: which measurement of a run a table shows, empty where there is one.
    """

    recipe: str
    scales: Mapping[str, Scale]
    metrics: type[MetricsSchema]
    sides: tuple[str, ...]
    scale_group: str
    data_files: tuple[str, ...] = DATA_FILES
    origin: InitialCheckpoint | None = None
    origins: Mapping[str, InitialCheckpoint] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()
    settings: str = LRPE_SETTINGS
    shown: str = ""

    def origin_at(self, scale: str) -> InitialCheckpoint | None:
        """The run that the runs of a scale start from."""
        return self.origins.get(scale, self.origin)

    def attention(self, word: str) -> dict[str, str | float]:
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

    def start_metrics(self, trainings: Sequence[Training], root: Path) -> Metrics:
        """Collect the metrics that runs which start from these trainings record of them.

        Args:
            trainings: of a finished run of this experiment, in their order.
            root: the folder that their folders are relative to.
        """
        return {}

    def at_lengths(self, factors: tuple[int, ...]) -> Self:
        """The same at these lengths, in those of the training; for tables with `lengths`."""
        raise NotImplementedError

    def lacks(self, metrics: Mapping[str, Any]) -> str:
        """What the metrics of a finished run do not have that is asked for; empty for nothing."""
        return ""

    def with_those_of(self, metrics: Mapping[str, Any]) -> Self:
        """The same, asking too for all that a finished run has."""
        return self

    def stacks(self, model: Mapping[str, Any]) -> list[Stack]:
        """The stacks of a composed model."""
        return [self._stack(model, side) for side in self.sides]

    def _stack(self, model: Mapping[str, Any], side: str) -> Stack:
        def of(option: str) -> Any:
            own = model.get(f"{side}_{option}")
            return model.get(option, "") if own is None else own

        # As the model does: a side with an encoding of its own does not inherit options.
        is_common = of("position_encoding") == model.get("position_encoding")
        options = model.get(f"{side}_position_encoding_options")
        if options is None:
            options = model.get("position_encoding_options", "") if is_common else ""
        return Stack(
            of("attention_type"),
            of("position_encoding"),
            options,
            side == "decoder",
            int(model[f"{side}_attention_heads"]),
            int(model[f"{side}_embed_dim"] or model["encoder_embed_dim"]),
        )

    def check_data(self, data: Path, pretraining: Path) -> None:
        """Refuse data that does not go with that of the pre-training, as another dictionary.

        Raises:
            ValueError: naming the file and the line.
        """

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Sentences of a table's caption beside those that all tables have."""
        return []

    def floors(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        """By metric what needs no model of ours, by the name of what gives it."""
        return {}

    def examples(self, data: DataDescription, scale: str) -> dict[str, int]:
        """By metric, where it is a share of examples in per cent, how many there are."""
        return {}

    def further_evaluations(self, results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Measurements of the same runs in another way.

        Returns:
            For each the suffix of its metrics' names, and a heading for its table.
        """
        return []

    def comparability(self, scale: str) -> str:
        """What a reader may compare with the paper's numbers."""
        if scale == "paper":
            return ""
        return (
            "The data, the model and the budget are far smaller than the paper's, so the numbers "
            "and the differences from the paper's are expected to be far off; what can be "
            f"compared is the order of the rows. What differs from {self.settings} is the same for "
            "every row."
        )
