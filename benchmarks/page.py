"""The page of a device, with measurements and targets, and its figure by length.

Targets are in results/targets.json, one a line, with the reason where a device misses one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.context import ROOT
from benchmarks.record import Result
from fairseq_plugins.analysis.figure_files import draw_lines
from fairseq_plugins.common.extras import is_installed
from fairseq_plugins.common.files import write_text, writing
from fairseq_plugins.common.pages import Page, Section, bullets, provenance_section, site_link
from fairseq_plugins.common.pictures import save_png
from fairseq_plugins.common.tables import DASH, markdown_table

_HIDDEN = {"contenders", "pace", "peaks"}  # settings that are not shown
_METHOD = (
    "The contenders of a ratio take turns in one run. A ratio is taken within each turn; the page "
    "has its median and quartiles over the turns. Before any timing, outputs and gradients are "
    "compared with plain formulas in float64. Made by `python -m benchmarks`.\n\n"
    "GFLOP/s count the matrix products of a call, and GB/s the least number of bytes to move: "
    "inputs are read once, outputs are written once, and tensors kept for backward are read again, "
    "and written if they are new. Shares are of the machine's peaks, those of a large matrix "
    "product and of a large copy (bytes read and written), measured right before and after the "
    "benchmark."
)


@dataclass(frozen=True)
class Target:
    """A target for a ratio.

    Attributes:
        ratio: its key in the benchmark's result.
        at_least: whether higher is better.
        devices: those for which the target is set.
        why_missed: by device, what keeps it from being met.
    """

    what: str
    benchmark: str
    ratio: str
    bound: float
    at_least: bool
    devices: list[str]
    why_missed: dict[str, str] = field(default_factory=dict)

    @property
    def bound_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:.3f}".removesuffix("0")

    def verdict(self, value: float) -> str:
        is_met = value >= self.bound if self.at_least else value <= self.bound
        return "met" if is_met else "missed"


_FILE = ROOT / "benchmarks" / "results" / "targets.json"
TARGETS = [Target(**target) for target in json.loads(_FILE.read_text("utf-8"))["targets"]]
# Those of Table 9 by row and attention, as "rope linear".
TABLE_9 = {target.ratio: target for target in TARGETS if target.benchmark == "table9"}


def spread(quartiles: Sequence[float] | None) -> str:
    """Format the quartiles of a ratio."""
    return " to ".join(map(_ratio, quartiles)) if quartiles else DASH


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 1000 else f"{value:.1e}"


def write(path: Path, results: Mapping[str, Result], summaries: Mapping[str, str]) -> Path:
    """Write the page of a device, ``cpu.md`` or ``gpu.md``, and its figure beside it."""
    if "figure" in results and is_installed("matplotlib"):
        draw_lengths(results["figure"], path.with_name(f"{path.stem}-lengths.png"))
    write_text(path, render(path.stem, results, summaries))
    return path


def render(device: str, results: Mapping[str, Result], summaries: Mapping[str, str]) -> str:
    """Render the Markdown page; `summaries` has all benchmarks, in order."""
    is_cpu = device == "cpu"
    caption = (
        "Speed and memory as ratios of contenders that take turns in one "
        f"run{', on one thread' * is_cpu}."
    )
    sections = [
        Section(f"`{name}`: {summary}", [*_details(device, results[name])])
        for name, summary in summaries.items()
        if name in results
    ]
    sections.append(Section("Targets of this project", [*_targets(device, results)]))
    if results:
        method = f"{'One thread. ' * is_cpu}{_METHOD}"
        sections.append(
            provenance_section(method, origin([*results.values()]), site_link("speed.html"))
        )
    result = [] if results else ["No benchmark is done yet."]
    return Page(f"Benchmarks on a {device.upper()}", caption, result, sections).markdown()


def origin(results: Sequence[Result]) -> str:
    """List machines, versions and commits of results, without repetitions."""

    def machine(result: Result) -> str:
        hardware = result["hardware"]
        cpu = f"{hardware['cpu']}, {hardware['threads']} of {hardware['cores']} cores used"
        return " and ".join([*hardware["gpus"], cpu])

    def versions(result: Result) -> str:
        found = result["versions"]
        return f"torch {found['torch']}, fairseq {found['fairseq']}, Python {found['python']}"

    lines = [
        f"{label}: {' / '.join(sorted({value(r) for r in results}))}."
        for label, value in (
            ("Machine", machine),
            ("Versions", versions),
            ("Commit", lambda r: r["commit"][:12] + r["commit"][40:]),
            ("Measured", lambda r: r["finished_at"][:10]),
        )
    ]
    loads = [r["load_average"] for r in results]
    lines.append(
        f"Load average at the start: {min(loads):.1f} to {max(loads):.1f}, of which up to 1 is "
        "due to the benchmark before."
    )
    return bullets(lines)


def _targets(device: str, results: Mapping[str, Result]) -> Iterator[str]:
    """Count the device's targets, explain the missed ones, and tabulate all."""
    lines, missed = [], []
    for target in TARGETS:
        if device not in target.devices:
            continue
        found = results.get(target.benchmark, {}).get("found", {"ratios": {}})
        value = found["ratios"].get(target.ratio)
        ours = [DASH, DASH, "not measured"]
        if value is not None:
            quartiles = spread(found["quartiles"].get(target.ratio))
            ours = [f"{value:.3f}", quartiles, target.verdict(value)]
        if ours[-1] == "missed":
            missed.append((target, ours[0]))
        lines.append([target.what, target.bound_text, *ours])
    count = Counter(line[-1] for line in lines)
    counted = ", ".join(f"{count[word]} {word}" for word in ("met", "missed", "not measured"))
    other = "GPU" if device == "cpu" else "CPU"
    yield f"{counted}. Targets for a {other} are on the page of a {other}."
    yield from explain_missed(device, missed)
    yield markdown_table(["what", "target", "measured", "quartiles", "verdict"], lines, left=1)


def explain_missed(device: str, missed: Sequence[tuple[Target, str]]) -> list[str]:
    """Say why each target is missed, those with one reason together; nothing if none is."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for target, measured in missed:
        why = target.why_missed.get(device, "not explained yet")
        reasons[why].append(f"{target.what}: {measured}")
    lines = [f"{'; '.join(names)}. {why[0].upper()}{why[1:]}." for why, names in reasons.items()]
    return ["Why targets are missed:", bullets(lines)] if lines else []


def _details(device: str, result: Result) -> Iterator[str]:
    """Yield the parts of a benchmark's section."""
    found, settings = result["found"], result["settings"]
    shown = (f"{key} {value}" for key, value in settings.items() if key not in _HIDDEN)
    yield f"Settings: {', '.join(shown)}."
    if result["benchmark"] == "figure":
        yield f"![time and memory against length]({device}-lengths.png)"
    elif found["ratios"]:
        ratios = found["ratios"].items()
        lines = [
            [f"`{key}`", _ratio(value), spread(found["quartiles"].get(key))]
            for key, value in ratios
        ]
        yield markdown_table(["ratio", "median", "quartiles"], lines, left=1)
    if found["medians"]:
        yield from _times(found)
    speeds = defaultdict(list)
    for key, value in found["values"].items():
        what, _, unit = key.rpartition(", ")
        if unit.endswith(" per second"):
            speeds[unit].append([f"`{what}`", f"{value:,.0f}"])
    for unit, lines in speeds.items():
        yield markdown_table(["speed", unit], lines, left=1)
    if found["skipped"]:
        yield bullets([f"`{name}` is left out: {why}" for name, why in found["skipped"].items()])
    names = [name for name in CONTENDERS if name in settings.get("contenders", {})]
    if names:
        yield bullets([f"`{name}`: {CONTENDERS[name].summary}." for name in names])


def _times(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of times and shares of the machine's peaks (missing in old JSON)."""
    lines = []
    for key, seconds in found["medians"].items():
        rates = found.get("rates", {}).get(key, {})
        line = [f"`{key}`", f"{1e3 * seconds:.3f}", str(found["rounds"][key])]
        for rate, share in (("gflop_per_s", "of_peak_gemm"), ("gb_per_s", "of_peak_copy")):
            part = rates.get(share)
            line += [_number(rates.get(rate)), DASH if part is None else f"{100 * part:.1f}"]
        lines.append(line)
    header = ["time", "median, ms", "turns", "GFLOP/s", "% of peak product"]
    yield markdown_table([*header, "GB/s", "% of peak copy"], lines, left=1)
    if found.get("peaks"):
        yield _peaks(found["peaks"])
    uncounted = defaultdict(list)
    for key, work in found.get("work", {}).items():
        if work["source"] != "counted":
            uncounted[work["source"]].append(f"`{key}`")
    if uncounted:
        yield bullets([f"Work of {', '.join(keys)}: {why}." for why, keys in uncounted.items()])


def _peaks(peaks: Mapping[str, Any]) -> str:
    side, size = peaks["gemm_size"], peaks["copy_bytes"] / 2**20

    def measured(name: str) -> str:
        values = peaks[name]
        if len(values) == 2:
            return " and ".join(map(_number, values))
        return f"{_number(min(values))} to {_number(max(values))}"

    return (
        f"Peaks before and after: {measured('gflop_per_s')} GFLOP/s in a product of two {side:,} x "
        f"{side:,} matrices, {peaks['gemm_dtype']}; {measured('gb_per_s')} GB/s in a copy of "
        f"{size:,.4g} MiB. A share is of the higher of the two around its measurement."
    )


def _number(value: float | None) -> str:
    """Format a number with three digits, or all digits of a larger integer part."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def curves(result: Result, quantity: str, unit: float) -> dict[str, Any]:
    """Return the lengths and the "medians" or "values" of each contender, in a unit."""
    lines = defaultdict(list)
    for key, value in result["found"][quantity].items():
        name, _, length = key.removeprefix("bytes ").partition("@")
        lines[name].append((int(length), value / unit))
    return {name: tuple(zip(*sorted(points), strict=True)) for name, points in lines.items()}


def draw_lengths(result: Result, path: Path) -> None:
    """Draw a PNG with panels for time and memory, on logarithmic axes."""
    times, sizes = curves(result, "medians", 1e-3), curves(result, "values", 2**20)
    memory = ("", "tokens", "peak memory beyond the inputs, MiB", sizes)
    picture = draw_lines([("", "tokens", "milliseconds", times), memory])
    for axis in picture.axes:
        axis.set(xscale="log", yscale="log")
    settings = result["settings"]
    picture.suptitle(
        f"causal attention, forward and backward: batch {settings['batch']}, {settings['heads']} x "
        f"{settings['head_dim']} features, {settings['dtype']}"
    )
    with writing(path) as (file,):
        save_png(picture, file)
