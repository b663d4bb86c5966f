"""Experiments: how the runs of a table are trained and measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from fairseq_plugins.attention import check_compatible
from fairseq_plugins.common.provenance import DATA_FILES
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import MetricsSchema
from fairseq_plugins.records.runs import Run

Metrics = dict[str, Any]
E = TypeVar("E", bound="Experiment")

# Where the papers state their settings.
LRPE_SETTINGS, BERT_SETTINGS = "LRPE's Table 7", "the BERT paper's Table 6"


@dataclass(frozen=True)
class Scale:
    """A size of an experiment; its model and budget are in configs/<scale group>/<name>.yaml.

    prepare: the commands that prepare its data. gpus: of one run by default, 0 for a CPU.
    """

    name: str
    prepare: tuple[str, ...]
    gpus: int = 0


def scales(*found: Scale) -> dict[str, Scale]:
    """Return scales by name, from the smallest on."""
    return {scale.name: scale for scale in found}


@dataclass(frozen=True)
class Step:
    """A command that measures a training, the name of its log, and a reader of the log's metrics.

    read: raises ValueError if the log has no metrics.
    """

    log: str
    command: list[str]
    read: Callable[[Path], Metrics]


@dataclass(frozen=True)
class Stack:
    """The properties of an encoder or decoder that a position encoding has to fit."""

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
    """The recipe and the measurements of the runs of some tables."""

    recipe: str  # name of the Hydra configuration
    scales: Mapping[str, Scale]
    metrics: type[MetricsSchema]
    sides: tuple[str, ...]  # "encoder", "decoder" or both, where the row's encoding is
    scale_group: str  # Hydra group of the scales
    data_files: tuple[str, ...] = DATA_FILES  # that each folder of data must have
    origin: InitialCheckpoint | None = None  # the run that each starts from; None: random weights
    origins: Mapping[str, InitialCheckpoint] = field(default_factory=dict)  # by scale; else origin
    trains: ClassVar[bool] = True  # False: the checkpoint of the origin is measured
    figure_note: ClassVar[str] = ""  # how to read the figure of a table
    leaves: tuple[str, ...] = ()  # files in a run's folder that figures are drawn from
    settings: str = LRPE_SETTINGS  # where the paper states its settings
    shown: str = ""  # which of several evaluations of a run tables show, as words of the legend

    def measured_by(self, kind: "type[E]", **own: Any) -> "E":
        """Return an experiment of another kind on the recipe, scales and data of this one."""
        shared = ("recipe", "scales", "sides", "scale_group", "data_files", "settings")
        return kind(**{**{name: getattr(self, name) for name in shared}, **own})

    def origin_at(self, scale: str) -> InitialCheckpoint | None:
        """Return the run that the runs of a scale start from."""
        return self.origins.get(scale, self.origin)

    def attention(self, word: str) -> dict[str, str | float]:
        """Return the model options of an attention."""
        return {"attention_type": word}

    def variants(self, scale: str) -> Sequence[Variant]:
        """Return the trainings of a run at a scale."""
        return [Variant("", self.recipe)] if self.trains else []

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        """Return the commands that measure a training, with paths relative to the root."""
        return []

    def measure(self, training: Training, folder: Path) -> Metrics:
        """Return the metrics that a training's folder has without further commands."""
        return {}

    def combine(self, parts: Mapping[str, Metrics]) -> Metrics:
        """Combine the metrics of a run's trainings, by name."""
        (only,) = parts.values()
        return dict(only)

    def start_metrics(self, trainings: Sequence[Training], root: Path) -> Metrics:
        """Return the metrics of a finished run that runs which start from it record.

        trainings: in order, with folders relative to the root.
        """
        return {}

    def at_lengths(self, factors: tuple[int, ...]) -> Self:
        """Return the experiment that measures other multiples of the training length.

        For tables with `lengths`.
        """
        raise NotImplementedError

    def lacks(self, metrics: Mapping[str, Any]) -> str:
        """Describe the requested metrics that a finished run lacks; empty if it has all."""
        return ""

    def also_measuring(self, metrics: Mapping[str, Any]) -> Self:
        """Return the experiment that also measures the metrics that a finished run has."""
        return self

    def with_missing_tasks(self, scale: str) -> Self:
        """Return the experiment whose results must have the scores of all tasks of a scale.

        For tables with an average over tasks.

        Raises ValueError: results at that scale cannot be completed.
        """
        raise NotImplementedError

    def recorded(self, training: str) -> Metrics | None:
        """Return the metrics of a training by an earlier result of the run; None to train it."""
        return None

    def stacks(self, model: Mapping[str, Any]) -> list[Stack]:
        """Return the stacks of a composed model."""
        return [self._stack(model, side) for side in self.sides]

    def _stack(self, model: Mapping[str, Any], side: str) -> Stack:
        def get(option: str) -> Any:
            own = model.get(f"{side}_{option}")
            return model.get(option, "") if own is None else own

        # As in the model: a side with an encoding of its own does not inherit the common options.
        is_common = get("position_encoding") == model.get("position_encoding")
        options = model.get(f"{side}_position_encoding_options")
        if options is None:
            options = model.get("position_encoding_options", "") if is_common else ""
        return Stack(
            get("attention_type"),
            get("position_encoding"),
            options,
            side == "decoder",
            int(model[f"{side}_attention_heads"]),
            int(model[f"{side}_embed_dim"] or model["encoder_embed_dim"]),
        )

    def incompatibility(self, model: Mapping[str, Any]) -> IncompatibleEncodingError | None:
        """Return why an attention of a composed model does not support its encoding, or None."""
        for stack in self.stacks(model):
            try:
                check_compatible(
                    stack.attention_type,
                    stack.position_encoding,
                    stack.options,
                    causal=stack.causal,
                    num_heads=stack.num_heads,
                    head_dim=stack.head_dim,
                )
            except IncompatibleEncodingError as error:
                return error
        return None

    def task_of(self, data: Path) -> dict[str, str]:
        """Return the options of the task that a prepared folder determines.

        Raises OptionError: the folder is of another task.
        """
        return {}

    def check_data(self, data: Path, pretraining: Path) -> None:
        """Compare dictionaries with those of the pre-training (ValueError: they differ)."""

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return sentences for the notes of a page with these results."""
        return []

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        """Return the scores of trivial baselines, by metric and name of the baseline."""
        return {}

    def examples(self, data: DataDescription, scale: str) -> dict[str, int]:
        """Return the number of examples of each metric that is a share of examples."""
        return {}

    def further_evaluations(self, results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Return other evaluations of the same runs that results have.

        Returns:
            For each evaluation the suffix of its metrics, and the heading of its table.
        """
        return []

    def comparability(self, scale: str) -> str:
        """Describe which of the paper's numbers can be compared."""
        if scale == "paper":
            return ""
        return (
            "The data, the model and the budget are far smaller than the paper's: compare the "
            "order of the rows, not the numbers. All rows differ from the settings in "
            f"{self.settings} in the same way."
        )


def unigram_baselines(data: DataDescription, splits: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return perplexity and loss in bits of word frequencies, for the splits that have them."""
    baselines: dict[str, dict[str, float]] = {}
    for split in splits:
        value = data.floors.number(split, "unigram", "ppl")
        if value:
            baselines[f"{split}_ppl"] = {"unigram": value}
            baselines[f"{split}_loss"] = {"unigram": log2(value)}
    return baselines


def merged(one: Metrics, other: Metrics) -> Metrics:
    """Merge metrics, and dictionaries that both have."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = {**one[key], **other[key]}
    return both
