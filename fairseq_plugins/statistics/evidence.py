"""All that the site shows: results of tables, timings and benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fairseq_plugins.papers import CLAIMS
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import LOCAL, Study
from fairseq_plugins.statistics.comparisons import Cells, gather
from fairseq_plugins.statistics.floors import Floors, floors_of
from fairseq_plugins.statistics.timings import RELATIVE_SPEED, TIMINGS, Content
from fairseq_plugins.statistics.verdicts import Numbers, Verdict, can_say, judge

RERUN = "local-"  # before the name of a scale whose runs a user has trained again


@dataclass(frozen=True)
class TableEvidence:
    """The results of a table at a scale.

    Attributes:
        name: of the scale, or of a study.
        shown: those that the pages show.
        left_out: a sentence on each other file: damaged, or of another experiment.
        study: what a user has otherwise than a scale.
        is_rerun: whether a user has trained again what came with the repository.
        is_published: whether its files are in the repository's history.
        absent: a sentence on each reason why rows of the paper are not among those shown.
    """

    table: Table
    name: str
    shown: Sequence[Result]
    left_out: Sequence[str]
    study: Study | None = None
    is_rerun: bool = False
    is_published: bool = False
    absent: Sequence[str] = ()

    @property
    def scale(self) -> str:
        """What tells these results from others of the table."""
        return f"{RERUN}{self.name}" if self.is_rerun else self.name

    @property
    def recipe_scale(self) -> str:
        """The scale of its recipe: also of a study, whose runs say it."""
        return str(self.shown[0]["scale"]) if self.shown else self.name

    @property
    def is_own(self) -> bool:
        """Whether a user made them, beside those that came with the repository."""
        return self.is_rerun or (self.study is not None and not self.is_published)

    @property
    def data_name(self) -> str:
        """The data of a study that has its own, by name; empty for the table's."""
        data = self.study.data if self.study else None
        return data.name if data else ""

    @property
    def page(self) -> str:
        """The name of its page on the site."""
        return f"{self.table.name}-{self.scale}.html"

    @property
    def files(self) -> Path:
        """What its page and figures in results/ are called, without a suffix."""
        return Path(*([LOCAL] if self.is_rerun else []), self.table.name, self.name)

    @cached_property
    def cells(self) -> Cells:
        return gather(self.shown, self.table.columns)

    @cached_property
    def floors(self) -> Floors:
        return floors_of(self.table, self.shown)

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], list[Result]]:
        """The results of each row and attention, by seed."""
        found: dict[tuple[str, str], list[Result]] = {}
        for result in sorted(self.shown, key=lambda one: one["seed"]):
            found.setdefault((result["row"], result["attention"]), []).append(result)
        return found


@dataclass(frozen=True)
class Evidence:
    """What a repository holds.

    Attributes:
        timings: Table 9 by device: each cell's JSON as it is.
        benchmarks: by machine and device what `python -m benchmarks` found.
        targets: what these aim at.
        left_out: a sentence on each damaged one of timings and benchmarks.
    """

    root: Path
    tables: Sequence[TableEvidence]
    timings: Mapping[str, Sequence[Content]] = field(default_factory=dict)
    benchmarks: Mapping[tuple[str, str], Sequence[Content]] = field(default_factory=dict)
    targets: Sequence[Content] = ()
    left_out: Sequence[str] = ()

    @cached_property
    def numbers(self) -> dict[str, Numbers]:
        """By scale what claims are judged by."""
        cells: dict[str, dict[str, Cells]] = {}
        floors: dict[str, dict[str, Floors]] = {}
        for one in (one for one in self.tables if one.study is None):
            cells.setdefault(one.scale, {})[one.table.name] = one.cells
            floors.setdefault(one.scale, {})[one.table.name] = one.floors
        for device, found in self.timings.items():
            cells.setdefault(device, {})[TIMINGS] = {
                (one["row"], one["attention"]): {
                    RELATIVE_SPEED: {0: one["metrics"][RELATIVE_SPEED]}
                }
                for one in found
            }
        return {scale: Numbers(own, floors.get(scale, {})) for scale, own in cells.items()}

    @cached_property
    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """By scale, then by the claim's name."""
        return {
            scale: {claim.name: judge(claim, found) for claim in CLAIMS if can_say(found, claim)}
            for scale, found in self.numbers.items()
        }

    def find(self, table: str, scale: str) -> TableEvidence | None:
        """The results of a table at a scale; None where there is not even a file."""
        found = (one for one in self.tables if (one.table.name, one.scale) == (table, scale))
        return next(found, None)
