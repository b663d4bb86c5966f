"""Files of encodings' pictures: PNG, SVG, JSON of the numbers, and a page of all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_plugins.analysis.figure_files import add_scale, grey_limits, round_digits
from fairseq_plugins.analysis.picture import EncodingPicture, Panel
from fairseq_plugins.common.files import with_ending, write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.encodings import get_entry
from fairseq_plugins.encodings.canonical import Primitive

COLUMNS = 3
WIDTH, HEIGHT, TITLE = 4.2, 3.1, 0.3  # inches of a panel, and of the figure's title
MARGINS = (0.5, 0.2, 0.45, 0.3)  # inches left, right, below and above each panel
LEGEND = 0.15  # room below a kernel's lines for the legend, as a share of their height
DPI = 80  # many pictures stand on one page
# Of several encodings: inches of a panel, and resolution for a page of 900 pixels at twice that.
ENCODINGS_ACROSS = 2
SMALL_WIDTH, SMALL_HEIGHT, SMALL_DPI = 2.4, 2.3, 150
DIGITS = 3  # significant
_WORDS = {
    ("content", "content"): ("q^T W k", "W"),
    ("content", "one"): ("q^T u", "u"),
    ("one", "content"): ("v^T k", "v"),
    ("one", "one"): ("c", "c"),
}


def write_picture(data: EncodingPicture, folder: Path) -> None:
    """Write <name>.png, .svg and .json into a folder, created if missing.

    Options are a part of the name: encodings that differ by them do not replace each other.
    """
    stem = folder / "-".join([data.name, *f"{data.options} {data.model}".split()])
    write_json(with_ending(stem, ".json"), to_json(data), indent=None)
    save_picture(draw(data), stem, dpi=DPI)


def to_json(data: EncodingPicture) -> dict[str, Any]:
    """Return the numbers of a picture."""
    return {
        "encoding": data.name,
        **({"options": data.options} if data.options else {}),
        **({"model": data.model} if data.model else {}),
        "attention": data.kind,
        "offsets": [data.offsets[0], data.offsets[-1]],
        "kernel": _rounded(data.kernel),
        "spread": _rounded(data.spread.mean(0)),
        "weights": _rounded(data.weights),
        "definition": [
            {"title": panel.title, "x": [panel.x[0], panel.x[-1]], "values": _rounded(panel.values)}
            for panel in data.definition
        ],
        "canonical_form": {str(at): _described(form) for at, form in data.form.items()}
        or data.no_form_reason,
    }


def _rounded(values: Tensor) -> Any:
    return round_digits(values, DIGITS)


def _described(form: Sequence[Primitive]) -> list[dict[str, Any]]:
    return [
        {
            "query": one.query,
            "key": one.key,
            "shape": list(one.matrix.shape),
            "norm_by_head": _rounded(one.matrix.flatten(1).norm(dim=1)),
            "mean_by_head": _rounded(one.matrix.flatten(1).mean(1)),
        }
        for one in form
    ]


def form_lines(data: EncodingPicture) -> list[str]:
    """Format the canonical form (LRPE, Eq. 6), a line for each offset, or why there is none."""
    if data.no_form_reason:
        return [f"{data.title}: no canonical form: {data.no_form_reason}"]
    lines = [f"{data.title}: scores before scaling, |.| the Frobenius norm of the first head"]
    for offset, form in data.form.items():
        terms = " + ".join(map(_term, form)) or "0"
        lines.append(f"  t - s = {offset:>3}: {terms}")
    return lines


def _term(one: Primitive) -> str:
    words, letter = _WORDS[one.query, one.key]
    if letter == "c":
        return f"c [{float(one.matrix[0, 0, 0]):.4g}]"
    sizes = " x ".join(str(size) for size in one.matrix.shape[1:] if size > 1)
    text = f"{letter} {sizes}, |{letter}| = {float(one.matrix[0].norm()):.4g}"
    if letter == "W":
        text += f", tr W = {float(one.matrix[0].trace()):.4g}"
    return f"{words} [{text}]"


def draw(data: EncodingPicture) -> Any:
    """Draw the definition, then kernel, decay and attention, with matplotlib."""
    count = len(data.definition) + 3
    columns = 2 if count == 4 else COLUMNS
    picture, grid = _grid(
        -(-count // columns),
        columns,
        f"{data.title}, {data.kind}{'' if data.model else ', untrained'}",
    )
    panels = list(grid.ravel())
    for panel in panels[count:]:
        panel.set_axis_off()
    for panel, part in zip(panels, data.definition, strict=False):
        _draw_part(picture, panel, part)
    _draw_behaviour(picture, panels[len(data.definition) : count], data)
    return picture


def _grid(rows: int, columns: int, title: str) -> tuple[Any, Any]:
    """Make a picture with panels (rows, columns), and room for titles and labels.

    Matplotlib's own layout is slower than the drawing.
    """
    from matplotlib.figure import Figure  # an extra, and slow to import

    width, height = WIDTH * columns, TITLE + HEIGHT * rows
    left, right, bottom, top = MARGINS
    picture = Figure(figsize=(width, height))
    picture.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - (TITLE + top) / height,
        wspace=(left + right) / (WIDTH - left - right),
        hspace=(bottom + top) / (HEIGHT - bottom - top),
    )
    picture.suptitle(title, y=1 - 0.08 / height, va="top", fontsize=11)
    panels = picture.subplots(rows, columns, squeeze=False)
    for panel in panels.ravel():
        panel.tick_params(labelsize=7)
    return picture, panels


def _draw_behaviour(picture: Any, panels: Sequence[Any], data: EncodingPicture) -> None:
    """Draw kernel, decay and attention into three panels."""
    kernel, decay, weights = panels
    _lines(kernel, data.offsets, data.kernel, "kernel: mean logit of the same word")
    middle, spread = data.kernel.mean(0), data.spread.mean(0)
    about = [(sign * spread).tolist() for sign in (-1, 1)]
    kernel.fill_between(data.offsets, *about, alpha=0.15, label="different words, one deviation")
    kernel.plot(data.offsets, middle.tolist(), color="black", linewidth=1.5, label="mean of heads")
    low, high = kernel.get_ylim()
    kernel.set_ylim(low - LEGEND * (high - low), high)
    kernel.legend(fontsize=7, loc="lower center", ncols=2)
    _lines(decay, data.offsets, data.decay, "decay: exp(kernel), over its largest value")
    if float(data.decay.min()) < 0.1:
        decay.set_yscale("log")
        decay.set_ylim(bottom=max(1e-6, float(data.decay.min()) / 2))
    else:
        decay.set_ylim(0, 1.05)  # so that a weak decay looks weak
    image = _attention(weights, data, "attention over a repeated word")
    add_scale(picture, image, weights, size=7)


def draw_side_by_side(pictures: Sequence[EncodingPicture]) -> Any:
    """Draw kernel and attention map of several encodings, two encodings in each line.

    Kernels have one scale, that of the means of heads: lines of single heads may leave it.
    """
    from matplotlib.figure import Figure

    across = min(ENCODINGS_ACROSS, len(pictures))
    rows = -(-len(pictures) // across)
    size = (SMALL_WIDTH * 2 * across, SMALL_HEIGHT * rows)
    picture = Figure(figsize=size, layout="constrained")
    panels = picture.subplots(rows, 2 * across, squeeze=False)
    means = [data.kernel.mean(0) for data in pictures]
    low = min(float(mean.min()) for mean in means)
    high = max(float(mean.max()) for mean in means)
    room = 0.05 * (high - low) or 1.0
    for panel in panels.ravel():
        panel.set_axis_off()
    for number, data in enumerate(pictures):
        row, column = divmod(number, across)
        kernel, weights = panels[row, 2 * column : 2 * column + 2]
        _draw_small(kernel, weights, data)
        kernel.set_ylim(low - room, high + room)
    return picture


def _draw_small(kernel: Any, weights: Any, data: EncodingPicture) -> None:
    """Draw kernel and attention map of an encoding, without a scale of the map."""
    for panel in (kernel, weights):
        panel.set_axis_on()
        panel.tick_params(labelsize=8)
    kind = ", causal" if data.causal else ""
    for line in data.kernel.tolist():
        kernel.plot(data.offsets, line, linewidth=0.7, alpha=0.7)
    kernel.plot(data.offsets, data.kernel.mean(0).tolist(), color="black", linewidth=1.1)
    kernel.set_title(f"{data.name}{kind}: kernel", fontsize=9)
    kernel.set_xlabel("key minus query", fontsize=8)
    kernel.set_ylabel("mean logit", fontsize=8)
    kernel.grid(alpha=0.3)
    _attention(weights, data, f"{data.name}: attention")


def _attention(panel: Any, data: EncodingPicture, title: str) -> Any:
    """Draw an attention map, and return its image."""
    weights = data.weights.numpy()
    # The first words of a causal model have few keys: their weights would hide all others.
    most = grey_limits(weights)[1] if data.causal else None
    image = panel.imshow(weights, cmap="Greys", vmin=0, vmax=most, interpolation="nearest")
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("key", fontsize=8)
    panel.set_ylabel("query", fontsize=8)
    return image


def write_side_by_side(pictures: Sequence[EncodingPicture], folder: Path) -> None:
    """Write a picture of several encodings, <name>-<name>-... .png and .svg."""
    stem = folder / "-".join(data.name for data in pictures)
    save_picture(draw_side_by_side(pictures), stem, dpi=SMALL_DPI)


def _lines(panel: Any, x: Sequence[int], values: Tensor, title: str) -> None:
    for line in values.tolist():
        panel.plot(x, line, linewidth=0.9, alpha=0.8)
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("t - s", fontsize=8)
    panel.grid(alpha=0.3)


def _draw_part(picture: Any, panel: Any, part: Panel) -> None:
    if part.kind == "lines":
        _lines(panel, part.x, part.values, part.title)
        return
    most = float(part.values.abs().max()) or 1.0
    edges = (part.x[0] - 0.5, part.x[-1] + 0.5, len(part.values) - 0.5, -0.5)
    shown = panel.imshow(
        part.values.numpy(),
        cmap="RdBu_r",
        vmin=-most,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
        extent=edges,
    )
    panel.set_title(part.title, fontsize=9)
    add_scale(picture, shown, panel, size=7)


def page(pictures: Sequence[EncodingPicture], command: str) -> str:
    """Render a Markdown page with every picture."""
    parts = ["# Pictures of the encodings", _EXPLAINED.format(command=command)]
    for data in pictures:
        entry = get_entry(data.name)
        kind = " Only for causal models." if data.causal else ""
        form = "\n".join(form_lines(data))
        parts += [
            f"## `{data.name}`",
            f"{entry.summary[0].upper()}{entry.summary[1:]}.{kind} {entry.source}. Numbers: "
            f"[{data.name}.json]({data.name}.json); to print: [{data.name}.svg]({data.name}.svg).",
            f"![Picture of {data.name}]({data.name}.png)",
            f"```\n{form}\n```",
        ]
    return "\n\n".join(parts) + "\n"


_EXPLAINED = (
    "Each encoding before any training, made by `{command}`. Words are vectors of independent "
    "normal features; queries and keys are the words themselves (identity projections), in 4 heads "
    "of 16 features. Learned parameters have their initial values: a bias that starts at zero "
    "shows nothing.\n\n"
    "- **Definition**, the first panels: the vector added to a word at each position (mean over "
    "words); for relative encodings the matrix W of t - s between queries and keys, at 1, 4 and 16 "
    "positions before the query, for others the matrices that encode keys at positions 1, 4 and "
    "16; the vectors multiplied with queries and keys at each offset; the bias of each head.\n"
    "- **Kernel**: the mean logit of a query and a key of the same word at each t - s, a line for "
    "each head. The band is one standard deviation of the logits of two different words, whose "
    "mean is zero without a bias.\n"
    "- **Decay**: exp(kernel) as a share of its largest value.\n"
    "- **Attention** over 64 positions of a sentence that repeats one word, averaged over words "
    "and heads: the effect of positions alone.\n"
    "- **Canonical form** (LRPE, Eq. 6), below each: the terms of a relative encoding's score at "
    "some offsets."
)
