"""Studies: those that the options of a table describe, and those that are recorded."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.provenance import describe_data, different_folders, missing_data
from fairseq_plugins.common.root import configs_folder, from_root, root_folder
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records import results
from fairseq_plugins.records.recipe import hydra_word, parse_setting, record
from fairseq_plugins.records.runs import Study
from fairseq_plugins.runner.journal import JOURNAL, Journal, written

_RECIPE = "the recipe's"  # of a setting or of data that a study leaves as they are


@dataclass(frozen=True)
class _Recorded:
    """A study as a result or a journal records it."""

    study: Study  # with the data's folder on this machine, if a journal has it
    scale: str  # of its recipe
    data: Mapping[str, Any]  # their description
    has_result: bool  # whether a result records it


def requested_study(root: Path, table: Table, args: argparse.Namespace) -> Study | None:
    """Return the study that the options of a table describe; None for the scale's own recipe.

    A recorded study keeps its settings, and without `--data` its data, if neither `--set` nor
    `--updates` is given; its scale is set in `args`.

    Raises OptionError: `--scale`, settings or data are others than the recorded ones.
    """
    asked, recorded = _described(args, root, table), _recorded(root, table, args.name)
    if asked is None or not recorded:
        return asked
    newest, goes_on = recorded[0], not (args.updates or args.set)
    if goes_on:
        if args.scale not in (None, newest.scale):
            raise OptionError(
                f"`--scale` must be {newest.scale}, the scale of study {args.name}, but is "
                f"{args.scale}"
            )
        args.scale = newest.scale
        data = asked.data or _place(root, recorded)
        if args.render:  # which needs no data
            return replace(newest.study, data=data or newest.study.data)
        if data is None and newest.study.data is not None:
            raise OptionError(
                f"`--data` must be given: study {args.name} used a folder "
                f"{newest.study.data.name}, which is not where it was recorded"
            )
        if args.data:
            check_own_data(args.data, EXPERIMENTS[table.experiment].data_files)
        asked = replace(newest.study, data=data)
    if not args.force and (goes_on or newest.has_result):
        _check_same([newest] if goes_on else recorded, asked, root)
    return asked


def _described(args: argparse.Namespace, root: Path, table: Table) -> Study | None:
    """Return the study that the options alone describe; None for the scale's own recipe.

    Raises OptionError: a setting is given twice, of which Hydra would use the last.
    """
    if not (args.name or args.data or args.updates or args.set):
        return None
    overrides = list(args.set)
    if args.updates:
        overrides.append(f"optimization.max_update={args.updates}")
    keys = [parse_setting(override)[0] for override in overrides]
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise OptionError(
            f"`--set` and `--updates` must set {twice[0]} once, but do so "
            f"{keys.count(twice[0])} times"
        )
    data = None if args.data is None else from_root(args.data.absolute(), root)
    of_data = _task_of_data(args, root, table)
    overrides += [f"{key}={hydra_word(of_data[key])}" for key in of_data if key not in keys]
    return Study(args.name or "own", tuple(overrides), data)


def _task_of_data(args: argparse.Namespace, root: Path, table: Table) -> dict[str, str]:
    """Return the settings of the task that `--data` determines and the recipe has otherwise."""
    experiment, scale = EXPERIMENTS[table.experiment], args.scale or "mini"
    options = experiment.task_of(args.data) if args.data else {}
    if not options or scale not in experiment.scales:
        return {}
    words = (f"{experiment.scale_group}={scale}",)
    recipe = record(configs_folder(root).resolve(), experiment.recipe, words)["task"]
    return {f"task.{key}": value for key, value in options.items() if value != recipe[key]}


def _recorded(root: Path, table: Table, name: str | None) -> list[_Recorded]:
    """Read what results and journals record of a study, results first and the newest first."""
    if not name:
        return []
    folder = root / root_folder("results") / table.name / name
    metrics = EXPERIMENTS[table.experiment].metrics
    found = results.read_results(folder, metrics, lambda text: None)
    found.sort(key=lambda result: str(result["finished_at"]), reverse=True)
    of_results = [
        _Recorded(study, result["scale"], result["data"], True)
        for result in found
        if (study := results.run_of(result).study)
    ]
    return [*of_results, *_in_journals(root / root_folder("checkpoints") / table.name / name, root)]


def _in_journals(folder: Path, root: Path) -> Iterator[_Recorded]:
    """Read what the journals of a study's runs record, the newest first."""
    for path in sorted(folder.glob(f"*/{JOURNAL}"), key=written, reverse=True):
        journal = Journal.read(path.parent)
        if journal and journal.study and (study := Study.read(journal.study)):
            one = replace(study, data=study.data and from_root(study.data, root))
            yield _Recorded(one, journal.study["scale"], journal.data, False)


def _place(root: Path, recorded: Sequence[_Recorded]) -> Path | None:
    """Return the folder of a recorded study's own data on this machine; None if it is unknown.

    Of a folder outside the root, results record the name alone, and journals the path.
    """
    if recorded[0].study.data is None:
        return None
    known = (one.study for one in recorded if not (one.has_result and one.study.has_bare_data))
    return next((one.data for one in known if one.data and (root / one.data).is_dir()), None)


def _check_same(recorded: Sequence[_Recorded], asked: Study, root: Path) -> None:
    """Check that settings and data are recorded ones (OptionError: naming what differs)."""
    reasons = [_differences(root, one, asked) for one in recorded]
    if all(reasons):
        fewest = min(reasons, key=len)
        raise OptionError(
            f"`--data`, `--updates` and `--set` must be those of study {asked.name}, but differ "
            f"({'; '.join(fewest)}); give another `--name`, or `--force` to replace "
            "its results"
        )


def _differences(root: Path, one: _Recorded, asked: Study) -> list[str]:
    """List the differences of a recorded study and another one, each "key: recorded -> other"."""
    before, after = (dict(map(parse_setting, s.overrides)) for s in (one.study, asked))
    reasons = [
        f"{key}: {before.get(key, _RECIPE)} -> {after.get(key, _RECIPE)}"
        for key in before | after
        if before.get(key) != after.get(key)
    ]
    return [*reasons, *filter(None, [_other_data(root, one, asked.data)])]


def _other_data(root: Path, one: _Recorded, folder: Path | None) -> str:
    """Describe how the data of a folder (None: the recipe's) differ from those of a study."""
    own = one.study.data
    if own is None or folder is None:
        return "" if own is folder else f"data: {own or _RECIPE} -> {folder or _RECIPE}"
    path = root / folder
    if not path.is_dir() or not different_folders(one.data, describe_data(path)):
        return ""
    return f"data: {own.name} -> {folder}, which has other data"


def check_own_data(folder: Path, files: Sequence[str]) -> None:
    """Check the folder of `--data` and its files (OptionError: one is missing)."""
    if not folder.is_dir():
        raise OptionError(f"`--data` must be an existing folder, but is {folder}")
    if lacking := missing_data(folder, files):
        raise OptionError(
            f"`--data` must be a folder that `fairseq-pe prepare` makes, but {folder} lacks "
            f"{', '.join(lacking)}"
        )


def study_options(study: Study, args: argparse.Namespace, root: Path) -> list[str]:
    """Return the options that describe a study, for the job of one run."""
    options = [word for text in study.overrides for word in ("--set", text)]
    options += ["--name", args.name] if args.name else []
    return [*options, *(["--data", str(root / study.data)] if study.data else [])]
