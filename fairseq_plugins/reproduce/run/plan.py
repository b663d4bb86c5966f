"""From what a user asks for to the runs of a table, everything refused that cannot work."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.attention import check_compatible
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.papers.tables import Table, check_rows, default_rows, has_file
from fairseq_plugins.reproduce.experiments import experiment_of
from fairseq_plugins.reproduce.experiments.base import (
    Experiment,
    Scale,
    Training,
    Variant,
)
from fairseq_plugins.reproduce.record.recipe import Layout, compose_recipe, record, spread
from fairseq_plugins.reproduce.run.commands import GPUS_PER_NODE, Run, placement, selection


@dataclass(frozen=True)
class Place:
    """Where runs go. gpus: devices of one run, 0 for a process on the CPU. srun: in a Slurm job.
    job: its number, 0 before it has one."""

    gpus: int
    srun: bool = False
    job: int = 0


@dataclass(frozen=True)
class Planned:
    """A run with its trainings, and the run whose checkpoint they start from, if any.

    One without trainings of its own measures that checkpoint.
    """

    run: Run
    place: Place
    trainings: tuple[Training, ...]
    pretraining: "Planned | None" = None

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.run.table)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """What is recorded of it: the configuration of its training, or one for each kind."""
        if self.pretraining is None and len(self.trainings) == 1:
            return self.trainings[0].config
        return {"trainings": self._kinds()}

    def _kinds(self) -> dict[str, dict[str, Any]]:
        """The configuration of each kind of training, those that it starts from first."""
        kinds: dict[str, list[Training]] = {}
        for training in self.trainings:
            kinds.setdefault(training.variant.kind or "pretraining", []).append(training)
        before = self.pretraining._kinds() if self.pretraining else {}
        return {**before, **{kind: _common(trainings) for kind, trainings in kinds.items()}}

    @property
    def before(self) -> "list[Planned]":
        """The runs that it starts from one after the other, the first one first."""
        return [*self.pretraining.before, self.pretraining] if self.pretraining else []

    @property
    def measured(self) -> tuple[Training, ...]:
        """The trainings whose checkpoints are measured."""
        if self.trainings or self.pretraining is None:
            return self.trainings
        return self.pretraining.trainings

    @property
    def prepare(self) -> tuple[str, ...]:
        """The commands that make its data."""
        return self.experiment.scales[self.run.scale].prepare

    @property
    def data(self) -> tuple[Path, ...]:
        """The folders of its data, relative to the repository."""
        before = self.pretraining.data if self.pretraining else ()
        return tuple(dict.fromkeys((*before, *(t.data for t in self.trainings))))

    def commands(self) -> list[list[str]]:
        """All its commands, in order, when nothing goes wrong."""
        found = self.pretraining.commands() if self.pretraining else []
        for training in self.measured:
            if training in self.trainings:
                found.append(training.command())
            checkpoint = training.folder / training.evaluated
            steps = self.experiment.steps(training, checkpoint, self.run, self.place.gpus)
            found += [step.command for step in steps]
        return found


def _common(trainings: Sequence[Training]) -> dict[str, Any]:
    """The configuration of trainings that differ in their learning rate, with all of these."""
    config = trainings[0].config
    rates = [rate for training in trainings for rate in training.config["optimization"]["lr"]]
    return {**config, "optimization": {**config["optimization"], "lr": rates}}


@dataclass(frozen=True)
class Dash:
    """A cell that stays empty, with the reason."""

    row: str
    attention: str
    reason: str


def compose_variant(
    configs: Path, run: Run, variant: Variant, more: Sequence[str] = ()
) -> dict[str, Any]:
    """The recorded configuration of a training, on one device unless `more` overrides say other.

    Composed once per process, so not to be changed.
    """
    return _compose(configs.resolve(), variant.recipe, (*_selection(configs, run), *more))


def _selection(configs: Path, run: Run) -> list[str]:
    experiment = experiment_of(run.table)
    return selection(
        run,
        has_file=has_file(configs, run.row),
        scale_group=experiment.scale_group,
        attention=experiment.attention(run.attention),
    )


@functools.cache
def _compose(configs: Path, recipe: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    return record(compose_recipe(configs, recipe, overrides))


def _set(config: Mapping[str, Any], run: Run, variant: Variant, folder: Path) -> dict[str, Any]:
    """The configuration of another attention, seed and variant of the same row, without composing
    it."""
    optimization = dict(config["optimization"])
    if variant.learning_rate is not None:
        optimization["lr"] = [variant.learning_rate]
    attention = experiment_of(run.table).attention(run.attention)
    if unknown := attention.keys() - config["model"].keys():
        raise ValueError(f"{variant.recipe}.yaml must have model.{min(unknown)} to be set.")
    return {
        **config,
        "model": {**config["model"], **attention},
        "optimization": optimization,
        "common": {**config["common"], "seed": run.seed},
        "checkpoint": {**config["checkpoint"], "save_dir": folder.as_posix()},
    }


def plan_run(configs: Path, run: Run, place: Place) -> Planned:
    """One run with its trainings.

    Raises:
        ValueError: GPUs that do not share the batch, or an option that the recipe does not have.
    """
    experiment, pretraining = experiment_of(run.table), None
    origin = experiment.origin
    if origin:
        before = replace(run, table=origin.table, row=origin.row or run.row, seed=1)
        pretraining = plan_run(configs, before, place)
    trainings = []
    for variant in experiment.variants(run.scale):
        folder = run.folder / variant.name if variant.name else run.folder
        training = _training(configs, run, variant, folder, place)
        if origin and pretraining:
            (first,) = pretraining.trainings
            training = origin.start(training, first.folder / first.evaluated)
        trainings.append(training)
    return Planned(run, place, tuple(trainings), pretraining)


def _training(configs: Path, run: Run, variant: Variant, folder: Path, place: Place) -> Training:
    attention = _first_attention(run)
    layout = _layout(configs, replace(attention, row="base"), variant, place)
    where = placement(attention.folder, place.gpus, layout, srun=place.srun, job=place.job)
    composed = compose_variant(configs, attention, variant, (*where, *variant.overrides))
    rate = variant.learning_rate
    overrides = (
        *_selection(configs, run),
        *placement(folder, place.gpus, layout, srun=place.srun, job=place.job),
        *variant.overrides,
        *(() if rate is None else (f"optimization.lr=[{rate:g}]",)),
    )
    config = _set(composed, run, variant, folder)
    return Training(variant, folder, overrides, config, place.srun)


def _first_attention(run: Run) -> Run:
    """The run of which all attentions and seeds of a row are copies, so that it is composed
    once."""
    return replace(run, attention="vanilla", seed=1)


def _layout(configs: Path, run: Run, variant: Variant, place: Place) -> Layout:
    """How the scale's total batch, which is the same for all rows, is spread."""
    composed = compose_variant(configs, run, variant, variant.overrides)
    return spread(composed, max(1, place.gpus))


def incompatibility(experiment: Experiment, model: Mapping[str, Any]) -> str | None:
    """Why an attention of a composed model cannot have its encoding; None where it can."""
    for side in experiment.sides(model):
        try:
            check_compatible(
                side.attention_type,
                side.position_encoding,
                side.options,
                causal=side.causal,
                num_heads=side.num_heads,
                head_dim=side.head_dim,
            )
        except IncompatibleEncodingError as error:
            return str(error)
    return None


def check_place(scale: Scale, place: Place) -> None:
    """Refuse a number of GPUs that no run could use.

    Raises:
        ValueError: naming the option and the value.
    """
    if place.gpus < 0:
        raise ValueError(f"`--gpus` must not be negative, but is {place.gpus} instead.")
    if place.gpus == 0 and (place.srun or scale.gpus):
        why = "with --slurm" if place.srun else f"at scale {scale.name}"
        raise ValueError(f"`--gpus` must be at least 1 {why}, but is 0 instead.")
    if place.srun and place.gpus > GPUS_PER_NODE and place.gpus % GPUS_PER_NODE:
        raise ValueError(
            f"`--gpus` above {GPUS_PER_NODE} must be a multiple of it (whole nodes), "
            f"but is {place.gpus} instead."
        )


def plan(
    configs: Path,
    table: Table,
    scale: Scale,
    place: Place,
    *,
    rows: Sequence[str] | None,
    attentions: Sequence[str],
    seeds: Sequence[int],
) -> tuple[list[Planned], list[Dash]]:
    """The runs of a table in the order of its rows, and the cells that cannot be run.

    rows: those asked for by name; None for the table's own.

    Raises:
        ValueError: an unknown row, GPUs that do not share the batch, or a row asked for by
            name that none of the attentions can have.
    """
    names = default_rows(table, configs) if rows is None else check_rows(table, configs, [*rows])
    planned: list[Planned] = []
    dashes: list[Dash] = []
    for name in names:
        before = len(planned)
        for attention in attentions:
            runs = [Run(table.name, scale.name, name, attention, seed) for seed in seeds]
            first = plan_run(configs, runs[0], place)
            reason = incompatibility(first.experiment, first.measured[0].config["model"])
            if reason:
                dashes.append(Dash(name, attention, reason))
                continue
            planned += [first, *(plan_run(configs, run, place) for run in runs[1:])]
        if rows is not None and len(planned) == before:
            raise ValueError(f"row {name!r}: {dashes[-1].reason}")
    return planned, dashes
