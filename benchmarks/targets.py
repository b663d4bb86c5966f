"""Targets of the benchmarks' ratios, which the page and the site show beside what is measured.

They are in results/targets.json, one a line; docs/performance.md explains the missed ones.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.papers.lrpe_speed import LRPE

# Rows of Table 9.
ROWS = ("base", "rope", "spe", "per", "t5", "alibi", *LRPE, "xl", "none")


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

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    @property
    def bound_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:.2f}"


def _read() -> tuple[Target, ...]:
    text = (Path(__file__).parent / "results" / "targets.json").read_text(encoding="utf-8")
    return tuple(Target(**target) for target in json.loads(text)["targets"])


TARGETS = _read()


def table9_targets(attention: str) -> dict[str, Target]:
    """Return the targets of Table 9 by row: speed relative to Base."""
    found = (target for target in TARGETS if target.benchmark == "table9")
    keys = {target.ratio: target for target in found}
    return {row: keys[key] for row in ROWS if (key := f"{row} {attention}") in keys}
