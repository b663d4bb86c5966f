"""Targets of the benchmarks' ratios, which the page and the site show beside what is measured.

They are in results/targets.json, one a line; docs/performance.md explains the missed ones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.context import ROOT
from fairseq_plugins.common.tables import DASH


@dataclass(frozen=True)
class Target:
    """A target for a ratio.

    Attributes:
        what: description of the ratio.
        benchmark: name of the benchmark that measures it.
        ratio: key of the ratio in the benchmark's result.
        bound: limit of the ratio.
        at_least: whether higher is better.
        devices: devices for which the target is set.
    """

    what: str
    benchmark: str
    ratio: str
    bound: float
    at_least: bool
    devices: list[str]

    @property
    def bound_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:.2f}"

    def verdict(self, value: float) -> str:
        """Judge a measured ratio."""
        is_met = value >= self.bound if self.at_least else value <= self.bound
        return "met" if is_met else "missed"


_FILE = ROOT / "benchmarks" / "results" / "targets.json"
TARGETS = [Target(**target) for target in json.loads(_FILE.read_text("utf-8"))["targets"]]
# Those of Table 9 by row and attention, as "rope linear".
TABLE_9 = {target.ratio: target for target in TARGETS if target.benchmark == "table9"}


def spread(found: Mapping[str, Any], ratio: str) -> str:
    """Format the quartiles of a ratio."""
    quartiles = found["quartiles"].get(ratio)
    return f"{quartiles[0]:.3f} to {quartiles[1]:.3f}" if quartiles else DASH
