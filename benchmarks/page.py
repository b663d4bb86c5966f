"""The page of a device: what was measured, then the targets; and the figure by length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.record import LINES_PER_SECOND, Result
from benchmarks.targets import TARGETS, Target
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.pages import Page, Section, bullets, made, site_link
from fairseq_plugins.common.pictures import save_png
from fairseq_plugins.common.tables import DASH, markdown_table


def render(device: str, results: Mapping[str, Result], summaries: Mapping[str, str]) -> str:
    """Render the Markdown page.

    Args:
        device: ``cpu`` or ``gpu``.
        results: results by benchmark.
        summaries: summaries of all benchmarks, in order.
    """
    where = "one thread; " if device == "cpu" else ""
    caption = (
        f"Medians of ratios within a turn, {where}the contenders of a ratio take turns in one run."
    )
    sections = [
        Section(f"`{name}`: {summary}", _details(device, results[name]))
        for name, summary in summaries.items()
        if name in results
    ]
    sections.append(Section("Targets of this project", [_targets(device, results)]))
    if results:
        text = origin(list(results.values()))
        sections.append(made(_introduction(device), text, site_link("speed.html")))
    result = [] if results else ["No benchmark is done yet."]
    return Page(f"Benchmarks on a {device.upper()}", caption, result, sections).markdown()


def _introduction(device: str) -> str:
    where = "One thread. " if device == "cpu" else ""
    return (
        f"{where}Ratios are measured in one run in which the contenders take turns: the median "
        "over the turns of the ratio within a turn, with quartiles. Before any timing, outputs and "
        "gradients are compared with plain formulas in float64. Made by `python -m benchmarks`.\n\n"
        "Each time has GFLOP/s of the call's matrix products, and GB/s of the least bytes to move: "
        "inputs are read once, outputs written once, and tensors kept for backward are read again, "
        "and written if new. Shares are of the machine's peaks in a large product and a large copy "
        "(bytes read and written), measured right before and after the benchmark."
    )


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
        f"Load average at the start: {min(loads):.1f} to {max(loads):.1f}, including up to 1 "
        "from the benchmark before."
    )
    return bullets(lines)


def verdict(target: Target, device: str, results: Mapping[str, Result]) -> tuple[str, str, str]:
    """Return the measured ratio, its quartiles, and met, missed or the reason of a gap."""
    if device not in target.devices:
        return DASH, DASH, f"no target on a {device.upper()}"
    result = results.get(target.benchmark)
    value = result["found"]["ratios"].get(target.ratio) if result else None
    if value is None:
        return DASH, DASH, "not measured"
    assert result is not None
    spread = _quartiles(result["found"], target.ratio)
    return f"{value:.3f}", spread, "met" if target.is_met(value) else "missed"


def _targets(device: str, results: Mapping[str, Result]) -> str:
    lines, met, missed = [], 0, 0
    for target in TARGETS:
        measured, spread, word = verdict(target, device, results)
        met, missed = met + (word == "met"), missed + (word == "missed")
        lines.append([target.what, target.bound_text, measured, spread, word])
    header = ["what", "target", "measured", "quartiles", "verdict"]
    table = markdown_table(header, lines, left=1)
    return f"{met} met, {missed} missed, {len(TARGETS) - met - missed} without a number.\n\n{table}"


def _details(device: str, result: Result) -> list[str]:
    found, settings = result["found"], result["settings"]
    shown = (f"{key} {value}" for key, value in settings.items() if key not in _HIDDEN)
    parts = [f"Settings: {', '.join(shown)}."]
    if result["benchmark"] == "figure":
        parts.append(f"![time and memory against length]({device}-lengths.png)")
    elif found["ratios"]:
        lines = [
            [f"`{key}`", f"{value:.3f}", _quartiles(found, key)]
            for key, value in found["ratios"].items()
        ]
        parts.append(markdown_table(["ratio", "median", "quartiles"], lines, left=1))
    if found["medians"]:
        parts += _times(found)
    speeds = {k: v for k, v in found["values"].items() if k.endswith(LINES_PER_SECOND)}
    if speeds:
        lines = [
            [f"`{key.removesuffix(LINES_PER_SECOND)}`", f"{value:,.0f}"]
            for key, value in speeds.items()
        ]
        parts.append(markdown_table(["speed", "lines per second"], lines, left=1))
    if found["skipped"]:
        skipped = [f"`{name}` is left out: {why}" for name, why in found["skipped"].items()]
        parts.append(bullets(skipped))
    names = [name for name in CONTENDERS if name in settings.get("contenders", {})]
    if names:
        parts.append(bullets([f"`{name}`: {CONTENDERS[name].summary}." for name in names]))
    return parts


_HIDDEN = {"contenders", "pace", "peaks"}  # settings that are not shown


def _times(found: Mapping[str, Any]) -> list[str]:
    """Tabulate times with their shares of the machine's peaks (missing in old JSON)."""
    header = ["time", "median, ms", "turns", "GFLOP/s", "% of peak product"]
    header += ["GB/s", "% of peak copy"]
    lines = []
    for key, seconds in found["medians"].items():
        rates = found.get("rates", {}).get(key, {})
        flop, bytes_ = _number(rates.get("gflop_per_s")), _number(rates.get("gb_per_s"))
        shares = [_percent(rates.get(name)) for name in ("of_peak_gemm", "of_peak_copy")]
        time = [f"`{key}`", f"{1e3 * seconds:.3f}", str(found["rounds"][key])]
        lines.append([*time, flop, shares[0], bytes_, shares[1]])
    parts = [markdown_table(header, lines, left=1)]
    if found.get("peaks"):
        parts.append(_peaks(found["peaks"]))
    uncounted: dict[str, list[str]] = {}
    for key, work in found.get("work", {}).items():
        if work["source"] != "counted":
            uncounted.setdefault(work["source"], []).append(f"`{key}`")
    if uncounted:
        notes = [f"Work of {', '.join(keys)}: {why}." for why, keys in uncounted.items()]
        parts.append(bullets(notes))
    return parts


def _peaks(peaks: Mapping[str, Any]) -> str:
    """Describe the machine's peaks."""
    side, size = peaks["gemm_size"], peaks["copy_bytes"] / 2**20

    def measured(name: str) -> str:
        values = peaks[name]
        if len(values) == 2:
            return " and ".join(map(_number, values))
        return f"{_number(min(values))} to {_number(max(values))}"

    return (
        f"Peaks before and after: {measured('gflop_per_s')} GFLOP/s in a product of two {side:,} x "
        f"{side:,} matrices, {peaks['gemm_dtype']}; {measured('gb_per_s')} GB/s in a copy of "
        f"{size:,.4g} MiB. A share is of the higher of the two around it."
    )


def _number(value: float | None) -> str:
    """Format a number with three digits, or all digits of a larger integer part."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{100 * share:.1f}"


def _quartiles(found: Mapping[str, Any], ratio: str) -> str:
    middle = found["quartiles"].get(ratio)
    return f"{middle[0]:.3f} to {middle[1]:.3f}" if middle else DASH


def curves(result: Result) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return sorted (length, value) by panel ("seconds", "bytes") and contender."""
    found = result["found"]
    times = found["medians"].items()
    sizes = ((key.removeprefix("bytes "), value) for key, value in found["values"].items())
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for panel, values in (("seconds", times), ("bytes", sizes)):
        lines: dict[str, list[tuple[int, float]]] = {}
        for key, value in values:
            name, _, length = key.partition("@")
            lines.setdefault(name, []).append((int(length), value))
        panels[panel] = {name: sorted(points) for name, points in lines.items()}
    return panels


def draw_lengths(result: Result, path: Path) -> None:
    """Draw a PNG with panels for time and memory, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    labels = {"seconds": "milliseconds", "bytes": "peak memory beyond the inputs, MiB"}
    units = {"seconds": 1e-3, "bytes": 2**20}
    for panel, (quantity, lines) in zip(panels, curves(result).items(), strict=True):
        for name, points in lines.items():
            lengths, values = zip(*points, strict=True)
            panel.loglog(lengths, [v / units[quantity] for v in values], "o-", label=name, ms=4)
        panel.set_xlabel("tokens")
        panel.set_ylabel(labels[quantity])
        panel.grid(alpha=0.3)
        panel.legend()
    sizes = result["settings"]
    figure.suptitle(
        f"causal attention, forward and backward: batch {sizes['batch']}, {sizes['heads']} x "
        f"{sizes['head_dim']} features, {sizes['dtype']}"
    )
    with writing(path) as (file,):
        save_png(figure, file)
