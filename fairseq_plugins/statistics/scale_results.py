"""The results at one scale, by which claims are judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fairseq_plugins.papers import TABLES
from fairseq_plugins.statistics.comparisons import Cells
from fairseq_plugins.statistics.correlations import Correlated, MetricPair, correlate
from fairseq_plugins.statistics.judged import Baselines, JudgedTable


@dataclass(frozen=True, eq=False)
class ScaleResults:
    """The results at one scale, by which claims are judged."""

    cells: Mapping[str, Cells]  # by the table's name, or `TIMINGS`
    baselines: Mapping[str, Baselines]  # by table
    scale: str = ""  # empty for the papers' own numbers
    _judged: dict[str, JudgedTable] = field(default_factory=dict, repr=False)

    def table(self, name: str) -> JudgedTable:
        """Return a table with tests of its differences."""
        if name not in self._judged:
            cells, baselines = self.cells.get(name, {}), self.baselines.get(name, {})
            self._judged[name] = JudgedTable(TABLES[name], cells, baselines)
        return self._judged[name]

    @cached_property
    def correlations(self) -> Mapping[MetricPair, Correlated]:
        """The correlations of the BERT paper's Table 5, corrected over all."""
        return correlate(self.cells, self.scale)
