"""The results of tables: their folders, and those that fit the present recipes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from fairseq_plugins.common.provenance import committed
from fairseq_plugins.common.root import nearest_configs, root_folder
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.base import Scale
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.rows import known_rows
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.papers import CLAIMS, TABLES
from fairseq_plugins.papers.claims import RELATIVE_SPEED, TIMINGS
from fairseq_plugins.papers.tables import Table, of_study, without_paper
from fairseq_plugins.records.recipe import differences
from fairseq_plugins.records.results import Result, Say, mismatch, other_data, read_results, run_of
from fairseq_plugins.records.runs import LOCAL, Run, Study
from fairseq_plugins.statistics.claims import drop_not_run
from fairseq_plugins.statistics.comparisons import Cells
from fairseq_plugins.statistics.judged import Baselines, JudgedTable
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.series import with_derived
from fairseq_plugins.statistics.timings import Content, read_timings
from fairseq_plugins.statistics.verdicts import Verdict, judge_by_scale

OWN = Path("results", LOCAL)  # where --rerun writes
RERUN = "local-"  # prefix of the name of a scale whose runs a user has repeated


@dataclass(frozen=True)
class TableResults:
    """The results of a table at a scale, or of a study."""

    table: Table  # of a study without the paper's numbers
    name: str  # of the scale, or of the study
    shown: Sequence[Result]  # those that pages show
    left_out: Sequence[str]  # a sentence on each other file: damaged, or of another experiment
    study: Study | None = None  # a user's changes to a scale's recipe
    is_rerun: bool = False  # whether a user has repeated runs that came with the repository
    is_published: bool = False  # whether its files are in the repository's history
    missing_rows: Sequence[str] = ()  # a sentence on each reason why the paper's rows are missing

    @property
    def scale(self) -> str:
        """The scale's or study's name, with a prefix if it is a rerun: unique among the table's."""
        return f"{RERUN}{self.name}" if self.is_rerun else self.name

    @property
    def recipe_scale(self) -> str:
        """The scale of the recipe; that of a study is in its runs."""
        return str(self.shown[0]["scale"]) if self.shown else self.name

    @property
    def is_own(self) -> bool:
        """Return whether a user made the results, beside those of the repository."""
        return self.is_rerun or (self.study is not None and not self.is_published)

    @property
    def data_name(self) -> str:
        """The name of a study's own data; empty for the table's."""
        data = self.study.data if self.study else None
        return data.name if data else ""

    @property
    def page(self) -> str:
        """The name of the page on the site."""
        return f"{self.table.name}-{self.scale}.html"

    @property
    def files(self) -> Path:
        """The path of the page and figures in results/, without a suffix."""
        return Path(*([LOCAL] if self.is_rerun else []), self.table.name, self.name)

    @cached_property
    def judged(self) -> JudgedTable:
        return JudgedTable.of(self.table, self.shown)

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], list[Result]]:
        """The results of each row and attention, by seed."""
        found: dict[tuple[str, str], list[Result]] = {}
        for result in sorted(self.shown, key=lambda one: one["seed"]):
            found.setdefault((result["row"], result["attention"]), []).append(result)
        return found


@dataclass(frozen=True)
class TableFolder:
    """The folder results/<table>/<scale>, or results/<table>/<study>, with JSON files of runs."""

    root: Path  # the repository
    table: Table
    scale: Scale
    study: Study | None = None  # None for the scale itself
    results: Path = field(default_factory=partial(root_folder, "results"))  # of all, below the root

    @property
    def name(self) -> str:
        return self.study.name if self.study else self.scale.name

    @property
    def folder(self) -> Path:
        """The folder of these results, to be joined to the root."""
        return self.results / self.table.name / self.name

    @property
    def shown_table(self) -> Table:
        """The table; for a study without the paper's numbers, which are of other data."""
        return without_paper(self.table) if self.study else self.table

    def files(self) -> dict[str, int]:
        """Return the modification time of each JSON file by name."""
        found = (self.root / self.folder).glob("*.json")
        return {path.name: path.stat().st_mtime_ns for path in found if path.is_file()}

    def read(self) -> TableResults:
        """Read the results, and leave out those of another experiment than the present configs/."""
        shown, left_out = self._own_results()
        table = self.table.at(self.scale.name)
        if self.study:
            table = of_study(table, {result["row"] for result in shown})
        return TableResults(
            table,
            self.name,
            shown,
            left_out,
            self.study,
            is_rerun=self.results == OWN,
            is_published=bool(self.study and committed(self.root, self.root / self.folder)),
            missing_rows=missing_rows(nearest_configs(self.root), table, self.scale.name, shown),
        )

    def changes(self, shown: Sequence[Result]) -> list[str]:
        """List what a study changes in the recipe, each "key: recipe -> here"."""
        found: dict[str, None] = {}
        for result in shown:
            run = replace(run_of(result), study=None)
            recipe = plan_run(nearest_configs(self.root), run, Devices(gpus=0))
            found |= dict.fromkeys(differences(recipe.config, result["config"]))
        return [*found]

    def _own_results(self) -> tuple[list[Result], list[str]]:
        """Read the results to show, and a sentence on each of the others."""
        configs = nearest_configs(self.root)
        rows = known_rows(self.table, configs)
        metrics = EXPERIMENTS[self.table.experiment].metrics
        shown: list[Result] = []
        left_out: list[str] = []
        for result in read_results(
            self.root / self.folder, metrics, lambda text: left_out.append(f"{text}.")
        ):
            run = run_of(result)
            if reason := self._mismatch(configs, rows, run, result):
                left_out.append(f"`{run.name}`, made by another experiment ({reason}).")
            else:
                shown.append(result)
        if not shown:
            return shown, left_out
        newest = PretrainedModel.of(max(shown, key=lambda result: result["finished_at"])["config"])
        others = [result for result in shown if PretrainedModel.of(result["config"]) != newest]
        left_out += [
            f"`{run_of(result).name}`, which starts from another model than the newest."
            for result in others
        ]
        shown = [result for result in shown if result not in others]
        mixed = other_data(shown)
        left_out += mixed.values()
        shown = [result for result in shown if run_of(result).name not in mixed]
        return metrics.comparable(shown), left_out

    def _mismatch(self, configs: Path, rows: Sequence[str], run: Run, result: Result) -> str:
        """Return how a result differs from this experiment; empty if it does not."""
        if run.row not in rows:
            return f"there is no row {run.row}"
        run = replace(run, scale=self.scale.name, study=self.study)
        planned = plan_run(configs, run, Devices(gpus=0), PretrainedModel.of(result["config"]))
        # A folder of that name in the root would be another one.
        is_elsewhere = self.study is not None and self.study.has_bare_data
        data = None if is_elsewhere else planned.describe_data(self.root)
        return "; ".join(mismatch(result, run, planned.config, data)[:3])


def missing_rows(configs: Path, table: Table, scale: str, results: Iterable[Result]) -> list[str]:
    """Write a sentence for each reason why rows of the paper have no result.

    A table without the paper's numbers has no missing rows.
    """
    if not table.is_printed:
        return []
    done = {(result["row"], result["attention"]) for result in results}
    found: dict[str, dict[str, list[str]]] = {}
    for attention in table.attentions:
        for row in table.rows:
            if (row.name, attention) in done:
                continue
            run = Run(table.name, scale, row.name, attention, 1)
            planned = plan_run(configs, run, Devices(gpus=0))
            error = planned.experiment.incompatibility(planned.measured[0].config["model"])
            if error is not None:
                reason = error.reason
            else:
                reason = "not run" if row.paper.get(attention) else "not in the paper and not run"
            found.setdefault(reason, {}).setdefault(attention, []).append(f"`{row.name}`")
    return [
        "No number here for "
        + "; ".join(f"{', '.join(names)} under {a} attention" for a, names in rows.items())
        + f": {reason}."
        for reason, rows in found.items()
    ]


def find_tables(root: Path) -> Iterator[TableFolder | TableResults]:
    """Find every folder of a table's results; as `TableResults` if all its files are damaged."""
    for below in dict.fromkeys([root_folder("results"), OWN]):
        for table in TABLES.values():
            for folder in sorted((root / below / table.name).glob("*/")):
                if any(folder.glob("*.json")):
                    yield _table_in(root, table, below, folder)


def _table_in(root: Path, table: Table, below: Path, folder: Path) -> TableFolder | TableResults:
    """Return a folder as a scale's, known by its name, or as a study's, known by its results."""
    experiment = EXPERIMENTS[table.experiment]
    if folder.name in experiment.scales:
        return TableFolder(root, table, experiment.scales[folder.name], results=below)
    damaged: list[str] = []
    for result in read_results(folder, experiment.metrics, damaged.append):
        study = Study.read(result.get("study"))
        if study is not None:
            return TableFolder(root, table, experiment.scales[result["scale"]], study, below)
    left_out = [f"{text}." for text in damaged]
    study = Study(folder.name)
    return TableResults(without_paper(table), folder.name, [], left_out, study, below == OWN)


@dataclass(frozen=True)
class Evidence:
    """Results of a repository."""

    root: Path  # the repository
    tables: Sequence[TableResults]  # of trained rows
    timings: Mapping[str, Sequence[Content]] = field(default_factory=dict)  # Table 9 by device
    # By machine and device the JSON files of `python -m benchmarks`.
    benchmarks: Mapping[tuple[str, str], Sequence[Content]] = field(default_factory=dict)
    targets: Sequence[Content] = ()  # the bounds that benchmarks are held against
    left_out: Sequence[str] = ()  # a sentence on each damaged file of timings and benchmarks

    @cached_property
    def numbers(self) -> dict[str, ScaleResults]:
        """The results by which claims are judged, by scale."""
        return numbers_by_scale(self.tables, self.timings)

    @cached_property
    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """Verdicts by scale, then by the claim's name."""
        return drop_not_run(judge_by_scale(CLAIMS, self.numbers))

    def find(self, table: str, scale: str) -> TableResults | None:
        """Return the results of a table at a scale; None without any file."""
        found = (one for one in self.tables if (one.table.name, one.scale) == (table, scale))
        return next(found, None)


def numbers_by_scale(
    tables: Iterable[TableResults], timings: Mapping[str, Sequence[Content]]
) -> dict[str, ScaleResults]:
    """Collect the numbers by which claims are judged, by scale and without studies."""
    cells: dict[str, dict[str, Cells]] = {}
    baselines: dict[str, dict[str, Baselines]] = {}
    for one in tables:
        if one.study is None:
            known = with_derived(one.table, one.shown, one.judged.cells)
            cells.setdefault(one.scale, {})[one.table.name] = known
            baselines.setdefault(one.scale, {})[one.table.name] = one.judged.baselines
    for device, found in timings.items():
        if found:
            cells.setdefault(device, {})[TIMINGS] = {
                (one["row"], one["attention"]): {
                    RELATIVE_SPEED: {0: one["metrics"][RELATIVE_SPEED]}
                }
                for one in found
            }
    return {
        scale: ScaleResults(own, baselines.get(scale, {}), scale.removeprefix(RERUN))
        for scale, own in cells.items()
    }


def read_numbers(
    root: Path,
    tables: Iterable[Table] | None = None,
    scale: str | None = None,
    say: Say = lambda _: None,
) -> dict[str, ScaleResults]:
    """Read the numbers by which claims are judged, by scale; scales without results are left out.

    tables, scale: to read; None for all. say: gets a sentence on each result that is left out.
    """
    read = []
    for table in TABLES.values() if tables is None else tables:
        for known in EXPERIMENTS[table.experiment].scales.values():
            folder = TableFolder(root, table, known)
            if scale in (None, known.name) and folder.files():
                read.append(folder.read())
                for sentence in read[-1].left_out:
                    say(f"{table.name}, {known.name}: {sentence}")
    return numbers_by_scale(read, read_timings(root, say))
