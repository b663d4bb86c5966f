"""The figure of time and memory by length."""

from pathlib import Path

from benchmarks.record import Result
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.pictures import save_png


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


def draw(result: Result, path: Path) -> None:
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
