"""Planning of a table's runs from its options, which are checked here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.root import root_folder
from fairseq_plugins.common.short_errors import invalid_option
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import GPUS_PER_NODE, Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.experiments.rows import check_rows, default_rows, encoding_of
from fairseq_plugins.experiments.training import PretrainedModel, Training
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.training_checks import check_options
from fairseq_plugins.papers import PUBLISHED, TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.recipe import SECTIONS, hydra_word
from fairseq_plugins.records.runs import Run, Study

MISSING_TASKS = "--missing-tasks"
_MOST_JOBS = 1000
TENSORBOARD = Path("outputs", "tensorboard")


def devices_of(
    scale: Scale, gpus: int | None, jobs: int, *, is_slurm: bool, job: int = 0
) -> Devices:
    """Return the devices of each run, `gpus` or those of the scale; `jobs` runs are side by side.

    Raises ValueError: an impossible number; the message names the option and the value.
    """
    gpus = scale.gpus if gpus is None else gpus
    # Several runs in a job are processes of one node, as outside Slurm.
    has_srun = is_slurm and gpus > 0 and jobs == 1
    if gpus < 0:
        raise ValueError(f"`--gpus` must not be negative, but is {gpus} instead.")
    if gpus == 0 and scale.gpus:
        raise ValueError(f"`--gpus` must be at least 1 at scale {scale.name}, but is 0 instead.")
    if has_srun and gpus > GPUS_PER_NODE and gpus % GPUS_PER_NODE:
        raise ValueError(
            f"`--gpus` above {GPUS_PER_NODE} must be a multiple of it (whole nodes), "
            f"but is {gpus} instead."
        )
    if jobs < 1:
        raise ValueError(f"`--jobs` must be at least 1, but is {jobs} instead.")
    if jobs > _MOST_JOBS:
        raise ValueError(f"`--jobs` must be at most {_MOST_JOBS:,}, but is {jobs} instead.")
    if is_slurm and jobs > 1 and jobs * gpus > GPUS_PER_NODE:
        raise ValueError(
            f"`--jobs` times `--gpus` must be at most the {GPUS_PER_NODE} GPUs of a node with "
            f"--slurm, but is {jobs} x {gpus} = {jobs * gpus} instead."
        )
    return Devices(gpus, srun=has_srun, job=job)


def plan(
    configs: Path,
    table: Table,
    scale: Scale,
    devices: Devices,
    *,
    rows: Sequence[str] | None = None,
    attentions: Sequence[str] | None = None,
    seeds: Sequence[int] = (1,),
    lengths: tuple[int, ...] = (),
    missing_tasks: bool = False,
    start: PretrainedModel | None = None,
    study: Study | None = None,
) -> tuple[list[PlannedRun], dict[tuple[str, str], str]]:
    """Plan the runs of a table in the order of its rows.

    rows, attentions: None for the table's own. seeds: of each row and attention. lengths: to
    measure, in multiples of the training length; empty for the table's own. missing_tasks: whether
    finished runs get the tasks that they lack. start: a published model for rows to start from.
    study: data, budget and settings that replace the scale's.

    Returns:
        The runs, and by row and attention the reason of each cell that stays empty.

    Raises:
        ValueError: an unknown row, GPUs that cannot share the batch, or a named row that supports
            none of the attentions.
    """
    controls = table.controls if scale.name == PUBLISHED else ()
    own = dict.fromkeys([*default_rows(table, configs), *controls])
    names = [*own] if rows is None else check_rows(table, configs, [*rows])
    planned: list[PlannedRun] = []
    skipped: dict[tuple[str, str], str] = {}
    for name in names:
        before = len(planned)
        for attention in table.attentions if attentions is None else attentions:
            runs = [Run(table.name, scale.name, name, attention, seed, study) for seed in seeds]
            first = plan_run(configs, runs[0], devices, start)
            is_changed = encoding_of(configs, name) is None or (study and not planned)
            if first.trainings and is_changed:
                try:
                    check_recipe(first.final.config)
                except OptionError as refused:
                    raise ValueError(f"row {name!r}: {refused}") from None
            _check_settings(configs, first)
            error = first.experiment.incompatibility(first.measured[0].config["model"])
            if error is not None:
                skipped[name, attention] = str(error)
                continue
            planned += [first, *(plan_run(configs, run, devices, start) for run in runs[1:])]
        if rows is not None and len(planned) == before:
            raise ValueError(f"row {name!r}: {[*skipped.values()][-1]}")
    if lengths:
        options = ("--lengths", ",".join(f"{factor}x" for factor in lengths))
        planned = [
            replace(one, requested=one.experiment.at_lengths(lengths), options=options)
            for one in planned
        ]
    if missing_tasks:
        planned = [
            replace(
                one,
                requested=one.experiment.with_missing_tasks(scale.name),
                options=(*one.options, MISSING_TASKS),
            )
            for one in planned
        ]
    return planned, skipped


def check_study(table: Table) -> None:
    """Check that a table's runs train from random weights, as a study requires.

    Raises ValueError: naming the tables that support studies.
    """
    if EXPERIMENTS[table.experiment].origin is not None:
        able = [n for n, one in TABLES.items() if EXPERIMENTS[one.experiment].origin is None]
        raise ValueError(
            "`--name`, `--data`, `--updates` and `--set` go with tables that train from random "
            f"weights ({', '.join(able)}), but {table.name} starts from another table's models."
        )


def _check_settings(configs: Path, planned: PlannedRun) -> None:
    """Check the settings of a study that fairseq does not check (ValueError: naming the option)."""
    if planned.run.study is None:
        return
    for override in planned.run.study.overrides:
        section = override.partition("=")[0].lstrip("+").partition(".")[0]
        if section not in FairseqConfig.__dataclass_fields__ and not (configs / section).is_dir():
            raise ValueError(
                f"`--set` must name an option of {', '.join(SECTIONS)}, or a "
                f"folder of configs, but names {section!r}."
            )
    config = planned.final.config
    budget = config["optimization"]
    if not budget["max_update"] and not budget["max_epoch"]:
        raise ValueError("`--set` must leave optimization.max_update or max_epoch above 0.")
    for stack in planned.experiment.stacks(config["model"]):
        if stack.width % stack.num_heads:
            raise ValueError(
                f"`--set` must leave a width that {stack.num_heads} attention heads share, but it "
                f"is {stack.width}."
            )


def check_recipe(recorded: Mapping[str, Any]) -> None:
    """Check a recorded configuration as fairseq does when its training starts.

    Raises OptionError: naming an option that is unknown, of another type or out of its range.
    """
    try:
        config = OmegaConf.merge(FairseqConfig, {name: recorded[name] for name in SECTIONS})
        add_defaults(config)
    except OmegaConfBaseException as error:
        raise OptionError(invalid_option(error)) from None
    registries = {name: entry["registry"] for name, entry in REGISTRIES.items()}
    registries |= {"task": TASK_REGISTRY, "model": MODEL_DATACLASS_REGISTRY}
    for section in registries.keys() & {*SECTIONS}:
        name = str(config[section]._name)
        if name not in registries[section]:
            raise OptionError(
                f"`{section}._name` must be a name that fairseq knows, but is {name!r}."
                f"{did_you_mean(name, registries[section])}"
            )
    check_numbers(config.model, config.model._name)
    check_options(config)


def tracked(planned: PlannedRun, tracker: str) -> PlannedRun:
    """Return the run with each training's loss logged to TensorBoard or Weights & Biases."""
    before = planned.pretraining and tracked(planned.pretraining, tracker)
    trainings = tuple(
        replace(t, overrides=(*t.overrides, _log(t, tracker))) for t in planned.trainings
    )
    return replace(
        planned,
        trainings=trainings,
        pretraining=before,
        options=(*planned.options, "--log", tracker),
    )


def _log(training: Training, tracker: str) -> str:
    """Return fairseq's option; Weights & Biases names a run by the folder of its checkpoints."""
    folder = training.folder.relative_to(root_folder("checkpoints"))
    if tracker == "wandb":
        return f"common.wandb_project={'-'.join(folder.parts[:2])}"
    return f"common.tensorboard_logdir={hydra_word((TENSORBOARD / folder).as_posix())}"
