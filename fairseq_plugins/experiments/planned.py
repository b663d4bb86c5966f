"""Planned runs: their trainings, configurations, data and commands."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.provenance import describe_all, missing_data
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.experiments import experiment_of
from fairseq_plugins.experiments.base import Experiment, Step
from fairseq_plugins.experiments.devices import Devices, placement, run_group, spread
from fairseq_plugins.experiments.rows import BASE, encoding_of, has_file
from fairseq_plugins.experiments.training import (
    FINETUNE,
    PREPARE,
    PretrainedModel,
    Training,
    Variant,
    default_checkpoint,
)
from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.records.recipe import hydra_word, record
from fairseq_plugins.records.runs import Run


@dataclass(frozen=True)
class MissingData:
    """A folder of data that lacks files, and the commands that prepare it."""

    folder: Path
    files: list[str]
    prepare: tuple[str, ...]


@dataclass(frozen=True)
class PlannedRun:
    """A run with its trainings."""

    run: Run
    devices: Devices
    trainings: tuple[Training, ...]  # in order; if none, `pretraining`'s checkpoint is measured
    pretraining: "PlannedRun | None" = None  # whose checkpoint the trainings start from
    requested: Experiment | None = None  # as `options` changed the table's; None if they did not
    options: tuple[str, ...] = ()  # of the script, that changed the experiment

    @property
    def experiment(self) -> Experiment:
        return self.requested or experiment_of(self.run.table)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The recorded configuration: of the one training, or of each kind of training."""
        if self.pretraining is None and len(self.trainings) == 1:
            return self.trainings[0].config
        return {"trainings": self._kinds()}

    def _kinds(self) -> dict[str, dict[str, Any]]:
        """Return the configuration of each kind of training, the pre-training's kinds first."""
        kinds: dict[str, list[Training]] = {}
        for training in self.trainings:
            kinds.setdefault(training.variant.kind or "pretraining", []).append(training)
        before = self.pretraining._kinds() if self.pretraining else {}
        return {**before, **{kind: _common(trainings) for kind, trainings in kinds.items()}}

    @property
    def ancestors(self) -> "list[PlannedRun]":
        """The runs that this one builds on, the earliest first."""
        return [*self.pretraining.ancestors, self.pretraining] if self.pretraining else []

    @property
    def measured(self) -> tuple[Training, ...]:
        """The trainings whose checkpoints are measured."""
        if self.trainings or self.pretraining is None:
            return self.trainings
        return (self.pretraining.final,)

    @property
    def final(self) -> Training:
        """The last training, from which other runs start."""
        return self.trainings[-1]

    @property
    def prepare(self) -> tuple[str, ...]:
        """The commands that prepare its data."""
        return self.experiment.scales[self.run.scale].prepare

    @property
    def data(self) -> tuple[Path, ...]:
        """The folders of its data, relative to the root."""
        before = self.pretraining.data if self.pretraining else ()
        return tuple(dict.fromkeys((*before, *(t.data for t in self.trainings))))

    def missing_data(self, root: Path) -> list[MissingData]:
        """List the missing files of its data, first those of the pre-training and the start."""
        gaps = self.pretraining.missing_data(root) if self.pretraining else []
        start = PretrainedModel.of(self.config) if self.pretraining is None else None
        if start and not (root / start.checkpoint).is_file():
            gaps.append(MissingData(start.checkpoint.parent, [start.checkpoint.name], (PREPARE,)))
        for folder in dict.fromkeys(training.data for training in self.trainings):
            if files := missing_data(root / folder, self.experiment.data_files):
                gaps.append(MissingData(folder, files, self.prepare))
        return gaps

    def describe_data(self, root: Path) -> dict[str, Any] | None:
        """Describe its data; None if some is missing."""
        if self.missing_data(root):
            return None
        shown = {Path(f.name) if f.is_absolute() else f: root / f for f in self.data}
        return describe_all({folder.as_posix(): path for folder, path in shown.items()})

    def commands(self) -> list[list[str]]:
        """Return all commands in order, those of its pre-training first."""
        commands = self.pretraining.commands() if self.pretraining else []
        for training in self.measured:
            if training in self.trainings:
                commands.append(training.command)
            commands += [step.command for step in self.steps(training)]
        return commands

    def steps(self, training: Training, checkpoint: Path | None = None) -> Sequence[Step]:
        """Return the steps that measure a training, or a copy of its checkpoint."""
        checkpoint = checkpoint or training.checkpoint
        return self.experiment.steps(training, checkpoint, self.run, self.devices.gpus)


def _common(trainings: Sequence[Training]) -> dict[str, Any]:
    """Return the configuration of trainings that differ only in their learning rate."""
    config = trainings[0].config
    rates = [rate for training in trainings for rate in training.config["optimization"]["lr"]]
    return {**config, "optimization": {**config["optimization"], "lr": [*dict.fromkeys(rates)]}}


def plan_run(
    configs: Path, run: Run, devices: Devices, start: PretrainedModel | None = None
) -> PlannedRun:
    """Plan one run.

    start: the published model to start from, None for a model that is trained here.

    Raises ValueError: GPUs that cannot share the batch, or an option that the recipe lacks.
    """
    experiment, pretraining, published = experiment_of(run.table), None, None
    origin = experiment.origin_at(run.scale)
    if origin and origin.may_be_published:
        published = start or (
            PretrainedModel(default_checkpoint(), "") if run.scale == PUBLISHED else None
        )
    if origin and not published:
        row = origin.row or TABLES[run.table].model_of(run.row)
        seed = run.seed if origin.same_seed else 1
        before = replace(run, table=origin.table, row=row, seed=seed)
        pretraining = plan_run(configs, before, devices, start)
    planned: dict[str, Training] = {}
    control = TABLES[run.table].controls.get(run.row)
    exchanges = bool(origin and origin.option != FINETUNE)
    for variant in experiment.variants(run.scale):
        folder = run.folder / variant.name if variant.name else run.folder
        model = run
        if control:
            model = replace(run, row=control.of)
            own = control.overrides if exchanges else ()
            variant = replace(variant, overrides=(*variant.overrides, *own))
        training = _training(configs, model, variant, folder, devices)
        if run.scale == PUBLISHED and start:
            training = training.with_sizes(start)
        if published and variant.after is not None:
            training = training.starting_published(published)
        if variant.after is not None:
            training = training.starting_from(planned[variant.after])
        elif origin and pretraining:
            training = training.starting_from(pretraining.final, origin.option)
        elif origin and published:
            training = training.starting_published(published, origin.option)
        planned[variant.name] = training
    options = ("--start", start.checkpoint.as_posix()) if start else ()
    return PlannedRun(run, devices, tuple(planned.values()), pretraining, options=options)


def _training(
    configs: Path, run: Run, variant: Variant, folder: Path, devices: Devices
) -> Training:
    base = _selection(configs, replace(run, row=BASE), variant)
    # The total batch of a scale is the same for all rows.
    whole = _record(configs, variant, [*base, run_group(Devices(0)), *variant.overrides])
    rate = variant.learning_rate
    own = (
        run_group(devices),
        *placement(folder, devices, spread(whole, max(1, devices.gpus))),
        *variant.overrides,
        *(() if rate is None else (f"optimization.lr=[{rate:g}]",)),
    )
    selection = _selection(configs, run, variant)
    # Composing is slow, so rows that differ in the encoding alone share the composition of Base.
    encoding = encoding_of(configs, run.row) if encoding_of(configs, BASE) else None
    shared = [*base, f"model.position_encoding={encoding}"] if encoding else selection
    config = _record(configs, variant, [*shared, *own])
    config["checkpoint"] = {**config["checkpoint"], "save_dir": _shown(folder)}
    overrides = (*selection, *own)
    data = _data_elsewhere(run, Path(config["task"]["data"]))
    if data is not None:
        overrides += (f"task.data={hydra_word(data.as_posix())}",)
        config["task"] = {**config["task"], "data": _shown(data)}
    return Training(variant, folder, overrides, config, devices.srun, data)


def _shown(folder: Path) -> str:
    """Return a folder as configurations record it: an absolute one by its name alone."""
    return folder.name if folder.is_absolute() else folder.as_posix()


def _data_elsewhere(run: Run, own: Path) -> Path | None:
    """Return the folder of a training's data; None for the recipe's folder below data/."""
    if run.study and run.study.data:
        return run.study.data
    folder = root_folder("data")
    if folder == Path("data") or not own.is_relative_to("data"):
        return None
    return folder / own.relative_to("data")


def _record(configs: Path, variant: Variant, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the recorded configuration of a training, whose sections may be replaced."""
    return {**record(configs.resolve(), variant.recipe, tuple(overrides))}


def _selection(configs: Path, run: Run, variant: Variant) -> list[str]:
    """Return the Hydra overrides that select the model, scale and seed.

    A row without a file in configs/model is Base with the encoding of that name.
    """
    experiment = experiment_of(run.table)
    is_base = not has_file(configs, run.row)
    return [
        f"model={BASE if is_base else run.row}",
        *([f"model.position_encoding={run.row}"] if is_base else []),
        f"{variant.scale_group or experiment.scale_group}={run.scale}",
        *(f"model.{key}={word}" for key, word in experiment.attention(run.attention).items()),
        f"common.seed={run.seed}",
        *(run.study.overrides if run.study else ()),
    ]
