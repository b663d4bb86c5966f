"""Views of speed: benchmarks with targets, and the paper's Table 9."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.papers import lrpe_speed
from fairseq_plugins.papers.claims import RELATIVE_SPEED
from fairseq_plugins.site.runs import circumstances
from fairseq_plugins.statistics.table_results import Evidence
from fairseq_plugins.statistics.timings import Content

# Benchmark, name, milliseconds, and the shares of the machine's peaks if counted.
Time = tuple[str, str, float, float | None, float | None]


@dataclass(frozen=True)
class Ratio:
    """A ratio of speeds or times."""

    label: str  # what is compared
    group: str  # the benchmark; of Table 9 the attention
    value: float | None  # median over turns; None if it is not measured
    quartiles: str  # as text, or ""
    bound: str = ""  # the target as text, or ""
    verdict: str = ""  # met or missed; "" without a target or a value
    row: str = ""  # of Table 9
    paper: float | None = None  # the number of Table 9


@dataclass(frozen=True)
class Machine:
    """Measurements on a machine's device."""

    name: str
    device: str
    circumstances: Sequence[tuple[str, str]]
    ratios: Sequence[Ratio]
    times: Sequence[Time]


def timing_command(rows: Sequence[str] = (), attention: str = "") -> str:
    """Return the command that times Table 9; "" in an installed package, without benchmarks."""
    words = ["--rows", ",".join(rows)] if rows else []
    words += ["--attention", attention] if attention else []
    return " ".join(["scripts/table9.sh", *words]) if IS_CHECKOUT else ""


def machines(evidence: Evidence) -> list[Machine]:
    """List machines and devices with results."""
    found = []
    for (name, device), results in evidence.benchmarks.items():
        ratios = [one for result in results for one in _ratios(result, device, evidence.targets)]
        ratios.sort(key=lambda one: not one.bound)
        times = [one for result in results for one in _times(result)]
        if ratios or times:
            found.append(Machine(name, device, circumstances(results[0]), ratios, times))
    return found


def table9(evidence: Evidence) -> dict[str, list[Ratio]]:
    """List speeds of training steps relative to Base by device, the paper's rows first."""
    found: dict[str, list[Ratio]] = {}
    for device, cells in evidence.timings.items():
        metrics = {(cell["row"], cell["attention"]): cell["metrics"] for cell in cells}
        rows = dict.fromkeys([*lrpe_speed.LABELS, *(row for row, _ in metrics)])
        found[device] = [
            _ratio(
                lrpe_speed.LABELS.get(row, row),
                attention,
                metrics.get((row, attention), {}).get(RELATIVE_SPEED),
                metrics.get((row, attention), {}).get("quartiles"),
                next(_targets(evidence.targets, "table9", device, f"{row} {attention}"), None),
                row=row,
                paper=printed.get(row),
            )
            for attention, printed in lrpe_speed.SPEEDS.items()
            for row in rows
            if row in printed or (row, attention) in metrics
        ]
    return found


def _ratios(result: Content, device: str, targets: Sequence[Content]) -> Iterator[Ratio]:
    """Yield a result's ratios; a ratio with several targets once for each target."""
    benchmark, found = result["benchmark"], result["found"]
    for key, value in found["ratios"].items():
        quartiles = found.get("quartiles", {}).get(key)
        aimed = [*_targets(targets, benchmark, device, key)]
        for target in aimed:
            yield _ratio(target["what"], benchmark, value, quartiles, target)
        if not aimed:
            yield _ratio(key, benchmark, value, quartiles, None)


def _targets(
    targets: Sequence[Content], benchmark: str, device: str, ratio: str
) -> Iterator[Content]:
    for one in targets:
        if (one["benchmark"], one["ratio"]) == (benchmark, ratio) and device in one["devices"]:
            yield one


def _ratio(
    label: str,
    group: str,
    value: float | None,
    quartiles: Sequence[float] | None,
    target: Content | None,
    **more: Any,
) -> Ratio:
    bound = verdict = ""
    if target is not None:
        limit, is_least = target["bound"], target["at_least"]
        bound = f"{'at least' if is_least else 'at most'} {limit:.2f}"
        if value is not None:
            verdict = "met" if (value >= limit if is_least else value <= limit) else "missed"
    between = f"{quartiles[0]:.3f} to {quartiles[1]:.3f}" if quartiles else ""
    return Ratio(label, group, value, between, bound, verdict, **more)


def _times(result: Content) -> Iterator[Time]:
    rates = result["found"].get("rates", {})
    for key, seconds in result["found"].get("medians", {}).items():
        own = rates.get(key, {})
        yield (
            result["benchmark"],
            key,
            1e3 * seconds,
            own.get("of_peak_gemm"),
            own.get("of_peak_copy"),
        )
