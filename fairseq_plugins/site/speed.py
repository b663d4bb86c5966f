"""Views of speed: benchmarks with targets, and the paper's Table 9."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_plugins.common.root import IS_CHECKOUT
from fairseq_plugins.papers import lrpe_speed
from fairseq_plugins.papers.claims import RELATIVE_SPEED
from fairseq_plugins.site.runs import circumstances
from fairseq_plugins.statistics.table_results import Evidence
from fairseq_plugins.statistics.timings import Content

MET, MISSED = "met", "missed"


@dataclass(frozen=True)
class Ratio:
    """A measured ratio.

    Attributes:
        bound: the target, or "".
        verdict: met or missed, or "" without a target.
    """

    what: str
    benchmark: str
    value: float
    quartiles: str
    bound: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class Time:
    """A measured time, with its share of the machine's peaks if counted."""

    benchmark: str
    name: str
    milliseconds: float
    of_product: float | None
    of_copy: float | None


@dataclass(frozen=True)
class Machine:
    """Measurements on a machine's device."""

    name: str
    device: str
    circumstances: Sequence[tuple[str, str]]
    ratios: Sequence[Ratio]
    times: Sequence[Time]


@dataclass(frozen=True)
class Speed:
    """A cell of Table 9: speed of a training step relative to Base.

    Attributes:
        paper: the paper's number, or None.
        value: median over turns, or None.
        bound, verdict: as in `Ratio`.
    """

    row: str
    label: str
    attention: str
    paper: float | None
    value: float | None
    quartiles: str
    bound: str
    verdict: str


def timing_command(rows: Sequence[str] = (), attention: str = "") -> str:
    """Return the command that times Table 9; "" without a checkout, which has benchmarks."""
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


def table9(evidence: Evidence) -> dict[str, list[Speed]]:
    """List speeds of training steps by device, the paper's rows first."""
    return {
        device: [
            _speed(evidence, device, row, attention, cells)
            for attention in lrpe_speed.SPEEDS
            for row in dict.fromkeys([*lrpe_speed.LABELS, *(cell["row"] for cell in cells)])
            if row in lrpe_speed.SPEEDS[attention] or _cell(cells, row, attention)
        ]
        for device, cells in evidence.timings.items()
    }


def _cell(cells: Sequence[Content], row: str, attention: str) -> Content | None:
    found = (one for one in cells if (one["row"], one["attention"]) == (row, attention))
    return next(found, None)


def _speed(
    evidence: Evidence, device: str, row: str, attention: str, cells: Sequence[Content]
) -> Speed:
    cell = _cell(cells, row, attention)
    metrics = cell["metrics"] if cell else {}
    value = metrics.get(RELATIVE_SPEED)
    aimed = [
        target
        for target in _targets(evidence.targets, "table9", device)
        if target["ratio"] == f"{row} {attention}"
    ]
    return Speed(
        row=row,
        label=lrpe_speed.LABELS.get(row, row),
        attention=attention,
        paper=lrpe_speed.SPEEDS[attention].get(row),
        value=value,
        quartiles=_quartiles(metrics.get("quartiles")),
        bound=_bound(aimed[0]) if aimed else "",
        verdict=_verdict(aimed[0], value) if aimed and value is not None else "",
    )


def _ratios(result: Content, device: str, targets: Sequence[Content]) -> list[Ratio]:
    found = []
    benchmark = result["benchmark"]
    own = _targets(targets, benchmark, device)
    for key, value in result["found"]["ratios"].items():
        text = _quartiles(result["found"].get("quartiles", {}).get(key))
        aimed = [target for target in own if target["ratio"] == key]
        found += [
            Ratio(one["what"], benchmark, value, text, _bound(one), _verdict(one, value))
            for one in aimed
        ]
        if not aimed:
            found.append(Ratio(key, benchmark, value, text))
    return found


def _targets(targets: Sequence[Content], benchmark: str, device: str) -> list[Content]:
    return [one for one in targets if one["benchmark"] == benchmark and device in one["devices"]]


def _bound(target: Content) -> str:
    return f"{'at least' if target['at_least'] else 'at most'} {target['bound']:.2f}"


def _verdict(target: Content, value: float) -> str:
    bound = target["bound"]
    return MET if (value >= bound if target["at_least"] else value <= bound) else MISSED


def _quartiles(found: Sequence[float] | None) -> str:
    return f"{found[0]:.3f} to {found[1]:.3f}" if found else ""


def _times(result: Content) -> list[Time]:
    rates = result["found"].get("rates", {})
    return [
        Time(
            result["benchmark"],
            key,
            1e3 * seconds,
            rates.get(key, {}).get("of_peak_gemm"),
            rates.get(key, {}).get("of_peak_copy"),
        )
        for key, seconds in result["found"].get("medians", {}).items()
    ]
