"""Views of a cell's runs: metrics by seed, commands, configuration and provenance."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.results import Result, curves_of, run_of
from fairseq_plugins.site.tables import cell_page
from fairseq_plugins.statistics.table_results import RERUN, TableResults

Flat = dict[str, str]  # shown value by dotted key
KINDS = {"valid": "validation", "train": "training"}  # kinds of curves
Settings = Mapping[tuple[str, str], str]  # shown value by training ("" for all) and dotted key
K = TypeVar("K")


@dataclass(frozen=True)
class RunView:
    """A run."""

    seed: int
    result: str
    circumstances: Sequence[tuple[str, str]]  # provenance; after the first run, what differs
    commands: int  # number of its commands among `TableCells.commands`, from 1
    differs: Flat  # settings that differ from the first run's, except the seed
    curves: Mapping[str, Sequence[tuple[float, float]]]  # updates and losses, validation first


@dataclass(frozen=True)
class CellView:
    """The runs of a row under an attention."""

    row: str
    label: str
    attention: str
    page: str
    script: str
    seeds: Sequence[int]
    metrics: Sequence[tuple[str, Sequence[str], str]]  # label, each seed's number, and the mean
    runs: Sequence[RunView]
    settings: Settings  # those that the table's runs do not share
    data: Flat  # sources and sizes that the table's runs do not share


@dataclass(frozen=True)
class TableCells:
    """The runs of each of a table's cells, and what all runs of the table share."""

    cells: Sequence[CellView]
    settings: Settings
    data: Flat  # sources and sizes
    commands: Sequence[str]  # with ROW, ATTENTION and SEED for a run's own


def table_cells(found: TableResults) -> TableCells:
    """Collect the runs of a table that has results."""
    settings = {cell: [settings_of(run) for run in runs] for cell, runs in found.runs.items()}
    shared = _shared([one for own in settings.values() for one in own])
    data = _shared([flat(run["data"]) for run in found.shown])
    patterns = Counter(map(command_pattern, found.shown)).most_common()
    commands = [pattern for pattern, _ in patterns]
    cells = [
        CellView(
            row=row,
            label=found.table.row(row).label,
            attention=attention,
            page=cell_page(found.table, found.scale, row, attention),
            script=script(found, [row], [attention], [run["seed"] for run in runs]),
            seeds=[run["seed"] for run in runs],
            metrics=_metrics(found, runs),
            runs=_run_views(runs, settings[row, attention], found.files, commands),
            settings=_without(settings[row, attention][0], shared),
            data=_without(flat(runs[0]["data"]), data),
        )
        for (row, attention), runs in found.runs.items()
    ]
    return TableCells(cells, shared, dict(sorted(data.items())), commands)


def _shared(every: Sequence[Mapping[K, str]]) -> dict[K, str]:
    """Return the items that all mappings have, in the order of the first."""
    common = set.intersection(*(set(one.items()) for one in every))
    return {key: value for key, value in every[0].items() if (key, value) in common}


def _without(own: Mapping[K, str], shared: Mapping[K, str]) -> dict[K, str]:
    return {key: value for key, value in own.items() if shared.get(key) != value}


def command_pattern(run: Result) -> str:
    """Return a run's commands with ROW, ATTENTION and SEED in place of its own.

    Folders of other tables keep their seed: they are those of the models that it starts from.
    """
    row, attention, seed = run["row"], run["attention"], run["seed"]
    text, own = "\n".join(run["command"]), re.escape(row)
    # A run may have trained its model in the folder of another table.
    trained = re.findall(rf"save_dir=(?:\S*/)?([^/\s]+)/[^/\s]+/{own}-", text)
    tables = "|".join(map(re.escape, {run["table"], *trained}))
    folder = rf"((?:{tables})/[^/\s]+/){own}-([^/\s]+?)-s{seed}(?!\d)"
    text = re.sub(folder, r"\1ROW-\2-sSEED", text).replace(
        f"{row}-{attention}-s", "ROW-ATTENTION-s"
    )
    text = text.replace(f"ROW-{attention}-s", "ROW-ATTENTION-s")
    text = re.sub(rf"model={own}(?!\S)", "model=ROW", text)
    return re.sub(rf"(seed[= ]){seed}(?!\d)", r"\1SEED", text)


def script(
    found: TableResults, rows: Sequence[str], attentions: Sequence[str], seeds: Sequence[int]
) -> str:
    """Return the command that makes some cells of a table."""
    study = found.study
    scale = f"{RERUN if found.is_rerun else ''}{found.recipe_scale}"
    words = table_command(found.table.name, scale, rows, attentions, seeds)
    if study is not None:
        words += ["--name", study.name]
        words += ["--data", study.data.as_posix()] if study.data else []
        words += [word for text in study.overrides for word in ("--set", text)]
    if found.shown and (start := PretrainedModel.of(found.shown[0]["config"])):  # of all
        words += ["--start", start.checkpoint.as_posix()]
    return typed(words)


def table_command(
    table: str, scale: str, rows: Sequence[str], attentions: Sequence[str], seeds: Sequence[int]
) -> list[str]:
    """Return the command that makes cells, as words; scale: of `TableResults`."""
    words = ["--scale", scale.removeprefix(RERUN), "--rows", ",".join(rows)]
    words += ["--attention", ",".join(attentions)]
    words += ["--seeds", ",".join(map(str, seeds))] if seeds else []
    words += ["--rerun"] if scale.startswith(RERUN) else []
    return [f"scripts/{table}.sh", *words]


def typed(words: Sequence[str]) -> str:
    """Format a command of scripts/ as a user types it."""
    return typed_command(shlex.join(words))


def flat(value: Any, prefix: str = "") -> Flat:
    """Flatten nested settings to dotted keys, without unset ones."""
    if isinstance(value, Mapping):
        found: Flat = {}
        for key, inner in value.items():
            found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    if value is None or value == "":
        return {}
    if isinstance(value, list):
        return {prefix: ", ".join(map(str, value))}
    return {prefix: str(value).lower() if isinstance(value, bool) else str(value)}


# Folders of a run, which its commands show.
_FOLDERS = frozenset(
    {
        "checkpoint.save_dir",
        "checkpoint.finetune_from_model",
        "checkpoint.load_checkpoint_on_all_dp_ranks",
    }
)


def settings_of(run: Result) -> Settings:
    """Return the settings of a run, first those that all its trainings share."""
    each = {
        name: {key: value for key, value in flat(config).items() if key not in _FOLDERS}
        for name, config in trainings_of(run["config"]).items()
    }
    shared = _shared([*each.values()])
    found = {("", key): value for key, value in sorted(shared.items())}
    for name, one in each.items():
        found |= {(name, key): value for key, value in sorted(_without(one, shared).items())}
    return found


def by_training(settings: Settings) -> dict[str, Flat]:
    """Group settings by training; "" for those that all trainings share."""
    found: dict[str, Flat] = {}
    for (name, key), value in settings.items():
        found.setdefault(name, {})[key] = value
    return found


def joined(settings: Settings) -> Flat:
    """Join the training's name and the key."""
    return {f"{name}: {key}" if name else key: v for (name, key), v in settings.items()}


def _differences(first: Flat, own: Flat, settings: Flat) -> Flat:
    """Return the settings of a run that differ from the first run's, except for the seed.

    Args:
        first: the first run's settings with marks in place of its seed.
        own: the run's settings likewise.
        settings: the run's settings as they are.
    """
    # The seed's key has the name of a training, unless all trainings share the seed.
    keys = sorted(
        key
        for key in first.keys() | own.keys()
        if first.get(key) != own.get(key) and not key.endswith("common.seed")
    )
    return {key: settings.get(key, "not set") for key in keys}


def _of_any_seed(text: str, seed: int, key: str = "") -> str:
    """Replace the seed in a setting, also in names of folders, by the word SEED."""
    if key.endswith("seed") and text == str(seed):
        return "SEED"
    return re.sub(rf"(seed[= ]|-s){seed}(?!\d)", r"\1SEED", text)


def _metrics(found: TableResults, runs: Sequence[Result]) -> list[tuple[str, Sequence[str], str]]:
    """List the table's columns by label, then all other metrics."""
    labels = {column.metric: column.label for column in found.table.columns}
    digits = {column.metric: column.digits for column in found.table.columns}
    scalar = [k for run in runs for k, v in run["metrics"].items() if _is_number(v)]
    lines: list[tuple[str, Sequence[str], str]] = []
    for key in dict.fromkeys([*(k for k in labels if k in scalar), *scalar]):
        values = [run["metrics"].get(key) for run in runs]
        known = [float(value) for value in values if _is_number(value)]
        shown = [_number(value, digits.get(key)) for value in values]
        lines.append((labels.get(key, key), shown, _number(fmean(known), digits.get(key))))
    return lines


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, digits: int | None) -> str:
    if not _is_number(value):
        return "-"
    if digits is not None:
        return f"{value:.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _run_views(
    runs: Sequence[Result],
    settings_by_run: Sequence[Settings],
    files: Path,
    commands: Sequence[str],
) -> list[RunView]:
    """Return a view of each run; later ones do not repeat the first one's circumstances."""
    around = circumstances(runs[0])
    settings = [joined(one) for one in settings_by_run]
    marked = [
        {key: _of_any_seed(value, run["seed"], key) for key, value in one.items()}
        for run, one in zip(runs, settings, strict=True)
    ]
    return [
        RunView(
            seed=run["seed"],
            result=(Path("results") / files / f"{run_of(run).name}.json").as_posix(),
            circumstances=[
                one for one in circumstances(run) if run is runs[0] or one not in around
            ],
            commands=commands.index(command_pattern(run)) + 1,
            differs=_differences(marked[0], own, plain),
            curves={
                ", ".join(filter(None, (name, KINDS[kind]))): points
                for (name, kind), points in curves_of(run).items()
            },
        )
        for run, own, plain in zip(runs, marked, settings, strict=True)
    ]


def circumstances(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the provenance of a result."""
    hardware, versions = run["hardware"], run["versions"]
    machine = f"{hardware['cores']} cores of {hardware['cpu']}"
    found = [
        ("commit", run["commit"]),
        ("finished", run["finished_at"]),
        ("wall time", f"{run['wall_seconds']:,.0f} s"),
        ("machine", ", ".join([*hardware["gpus"], machine])),
        *([("threads", str(threads))] if (threads := hardware.get("threads")) else []),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    for part in run.get("earlier") or ():
        trainings = ", ".join(part["trainings"])
        where = ", ".join(part["hardware"]["gpus"]) or part["hardware"]["cpu"]
        found.append(("earlier", f"{trainings}: commit {part['commit']}, {where}"))
    if signature := run.get("signature"):
        found.append(("SacreBLEU", signature))
    return found
