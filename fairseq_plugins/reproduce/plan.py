"""From what a user asks for to the runs of a table, everything refused that cannot work."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.attention import check_compatible
from fairseq_plugins.encodings import IncompatibleEncodingError
from fairseq_plugins.reproduce.checkpoints import BEST, LAST
from fairseq_plugins.reproduce.commands import (
    GPUS_PER_NODE,
    Material,
    Run,
    evaluate_command,
    evaluations,
    placement,
    selection,
    train_command,
)
from fairseq_plugins.reproduce.recipe import Layout, compose_recipe, record, spread, total_batch
from fairseq_plugins.reproduce.tables import (
    SCALES,
    TABLES,
    Scale,
    Table,
    check_rows,
    default_rows,
    has_file,
)


@dataclass(frozen=True)
class Place:
    """Where runs go. gpus: devices of one run, 0 for a process on the CPU. srun: in a Slurm job."""

    gpus: int
    srun: bool = False


@dataclass(frozen=True)
class Planned:
    """A run with what its commands need.

    overrides: Hydra's, for its training. config: what `recipe.record` gives of it.
    """

    run: Run
    place: Place
    overrides: tuple[str, ...]
    config: dict[str, Any]

    @property
    def max_update(self) -> int:
        return int(self.config["optimization"]["max_update"])

    @property
    def data(self) -> Path:
        """The folder of its data, relative to the repository."""
        return Path(self.config["task"]["data"])

    def train(self, restore: Path | None = None) -> list[str]:
        """The training; `restore` is a checkpoint other than checkpoint_last.pt."""
        overrides = list(self.overrides)
        if restore:
            overrides.append(f"checkpoint.restore_file={restore.as_posix()}")
        return train_command(self.run, overrides, srun=self.place.srun)

    def evaluate(self, checkpoint: Path, subset: str, context: int) -> list[str]:
        material = Material(self.data.as_posix(), int(self.config["task"]["tokens_per_sample"]))
        return evaluate_command(self.run, material, checkpoint, subset, context, self.place.gpus)

    def commands(self) -> list[list[str]]:
        """All its commands, in order, when nothing goes wrong."""
        chosen = self.run.folder / self.evaluated
        pairs = evaluations(SCALES[self.run.scale].evaluation)
        return [self.train(), *(self.evaluate(chosen, s, context) for s, context in pairs)]

    @property
    def evaluated(self) -> str:
        """The checkpoint that is evaluated: the best on the validation set, or the last where
        training does without validation."""
        return LAST if self.config["dataset"]["disable_validation"] else BEST


@dataclass(frozen=True)
class Dash:
    """A cell that stays empty, with the reason."""

    row: str
    attention: str
    reason: str


def compose_run(configs: Path, run: Run, more: Sequence[str] = ()) -> dict[str, Any]:
    """The recorded configuration of a run, on one device unless `more` overrides say other.

    Composed once per process, so not to be changed.
    """
    overrides = (*selection(run, has_file=has_file(configs, run.row)), *more)
    return _compose(configs.resolve(), TABLES[run.table].recipe, overrides)


@functools.cache
def _compose(configs: Path, recipe: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    return record(compose_recipe(configs, recipe, overrides))


def set_run(config: dict[str, Any], run: Run) -> dict[str, Any]:
    """The configuration of another attention and seed of the same row, without composing it."""
    return {
        **config,
        "model": {**config["model"], "attention_type": run.attention},
        "common": {**config["common"], "seed": run.seed},
        "checkpoint": {**config["checkpoint"], "save_dir": run.folder.as_posix()},
    }


def incompatibility(config: dict[str, Any]) -> str | None:
    """Why the attention of a composed model cannot have its encoding; None where it can."""
    model = config["model"]
    heads = int(model["decoder_attention_heads"])
    try:
        check_compatible(
            model["attention_type"],
            model["position_encoding"],
            model.get("position_encoding_options", ""),
            causal=True,
            num_heads=heads,
            head_dim=int(model["decoder_embed_dim"]) // heads,
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
    layout = _layout(configs, Run(table.name, scale.name, names[0], attentions[0], seeds[0]), place)
    planned: list[Planned] = []
    dashes: list[Dash] = []
    for name in names:
        before = len(planned)
        first = Run(table.name, scale.name, name, attentions[0], seeds[0])
        where = placement(first, place.gpus, layout, srun=place.srun)
        composed = compose_run(configs, first, where)
        for attention in attentions:
            runs = [Run(table.name, scale.name, name, attention, seed) for seed in seeds]
            reason = incompatibility(set_run(composed, runs[0]))
            if reason:
                dashes.append(Dash(name, attention, reason))
                continue
            planned += [_planned(configs, run, place, layout, composed) for run in runs]
        if rows is not None and len(planned) == before:
            raise ValueError(f"row {name!r}: {dashes[-1].reason}")
    return planned, dashes


def _planned(
    configs: Path, run: Run, place: Place, layout: Layout, composed: dict[str, Any]
) -> Planned:
    overrides = (
        *selection(run, has_file=has_file(configs, run.row)),
        *placement(run, place.gpus, layout, srun=place.srun),
    )
    return Planned(run, place, overrides, set_run(composed, run))


def _layout(configs: Path, run: Run, place: Place) -> Layout:
    """How the scale's total batch, which is the same for all rows, is spread."""
    config = compose_run(configs, run)
    per_device = int(config["dataset"]["batch_size"])
    return spread(total_batch(config), per_device, max(1, place.gpus))
