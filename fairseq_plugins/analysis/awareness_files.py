"""Awareness of encodings for a terminal and as files: heat maps, a JSON of the numbers, a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_plugins.analysis.awareness import (
    Awareness,
    as_words,
    centre_gap,
    measure_awareness,
    slices,
)
from fairseq_plugins.analysis.position_rows import added_scores, build_plain, embeds, rows_by_length
from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.common.report_view import view_of_figure
from fairseq_plugins.common.tables import columns, markdown_table
from fairseq_plugins.encodings import ENCODINGS, expand_name

MEASURED = range(2, 41)  # lengths that are compared
COLUMNS = 4
PAPER = ("sinusoidal", "rspe", "aspe", "dpe", "2dspe")  # the paper's, SPE first
FIGURES = {10: "Figure 2", 20: "Figure 6"}  # the paper's, by length
COMMAND = "fairseq-pe analyse awareness"


@dataclass(frozen=True)
class Observation:
    """An encoding and what its vectors know.

    Attributes:
        name: of the encoding.
        awareness: None where it has no vector for a position.
        maps: by length the vectors (T, C).
        centre_gap: of an encoding that acts inside the attention, else None.
    """

    name: str
    awareness: Awareness | None
    maps: dict[int, Tensor]
    centre_gap: float | None


def absolute_names() -> list[str]:
    """Return all encodings of token embeddings, the paper's first, without combinations."""
    single = (name for name in ENCODINGS if len(expand_name(name)) == 1)
    others = sorted(name for name in single if embeds(name) and name not in PAPER)
    return [*PAPER, *others]


def observe(
    name: str, *, width: int, lengths: Sequence[int], seed: int, **options: Any
) -> Observation:
    """Measure an encoding.

    Args:
        name: its name.
        width: features of a vector.
        lengths: of the heat maps.
        seed: of what it draws.
        options: its own.

    Raises:
        ValueError: an unknown name or option, or what the encoding refuses.
    """
    longest = max(*MEASURED, *lengths)
    encodings = build_plain(name, width=width, longest=longest, seed=seed, **options)
    gap = None
    if encodings.layers[0] is not None:
        gap = centre_gap(added_scores(encodings, max(lengths), seed=seed))
    if encodings.inputs[0] is None:
        return Observation(name, None, {}, gap)
    rows = rows_by_length(encodings, MEASURED, seed=seed)
    maps = rows_by_length(encodings, lengths, seed=seed)
    return Observation(name, measure_awareness(rows), maps, gap)


HEADER = (
    "encoding",
    "forward-aware",
    "its features",
    "backward-aware",
    "its features",
    "3.1 misses",
    "3.2 misses",
    "sum formula misses",
    "between centres",
)


def lines(seen: Sequence[Observation]) -> list[list[str]]:
    """A line of words for each encoding, as `HEADER` names them."""
    found = []
    for one in seen:
        gap = "-" if one.centre_gap is None else f"{one.centre_gap:.3f}"
        known = one.awareness
        if known is None:
            found.append([one.name, "no", "-", "no", "-", "-", "-", "-", gap])
            continue
        found.append(
            [
                one.name,
                "yes" if known.is_forward_aware else "no",
                as_words(known.forward),
                "yes" if known.is_backward_aware else "no",
                as_words(known.backward),
                _gap(known.forward_function),
                _gap(known.backward_function),
                f"{known.sum_error:.4f}",
                gap,
            ]
        )
    return found


def _gap(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def as_text(seen: Sequence[Observation]) -> str:
    """Format the measures for a terminal."""
    return columns([list(HEADER), *lines(seen)], left=5)


def write(seen: Sequence[Observation], folder: Path) -> None:
    """Write awareness.md and .json, and for each length length_<n>.png and .svg."""
    write_json(folder / "awareness.json", as_data(seen))
    drawn = [one for one in seen if one.maps]
    lengths = list(drawn[0].maps) if drawn else []
    for length in lengths:
        save_picture(draw(drawn, length), folder / f"length_{length}")
    write_text(folder / "awareness.md", page(seen, lengths, folder))


def as_data(seen: Sequence[Observation]) -> dict[str, Any]:
    """Return all measures and the vectors of the heat maps."""
    return {
        "what": "forward- and backward-awareness of position vectors",
        "lengths_compared": [MEASURED[0], MEASURED[-1]],
        "encodings": {one.name: _measures(one) for one in seen},
    }


def _measures(one: Observation) -> dict[str, Any]:
    known = one.awareness
    found: dict[str, Any] = {"centre_gap": one.centre_gap}
    if known is None:
        return found
    return {
        **found,
        "forward_aware": known.is_forward_aware,
        "backward_aware": known.is_backward_aware,
        "forward_features": slices(known.forward),
        "backward_features": slices(known.backward),
        "forward_apart": known.forward_apart,
        "backward_apart": known.backward_apart,
        "forward_function_gap": known.forward_function,
        "backward_function_gap": known.backward_function,
        "sum_formula_error": known.sum_error,
        "largest": known.size,
        "vectors": {str(n): [_short(row) for row in rows.tolist()] for n, rows in one.maps.items()},
    }


def _short(row: list[float]) -> list[float]:
    return [float(f"{value:.3g}") for value in row]


def draw(seen: Sequence[Observation], length: int) -> Any:
    """Heat maps of the vectors at one length, a panel for each encoding."""
    from matplotlib.figure import Figure  # an extra, which the numbers do without
    from matplotlib.ticker import MaxNLocator

    across = min(COLUMNS, len(seen))
    down = math.ceil(len(seen) / across)
    picture = Figure(figsize=(3.4 * across, 0.6 + 2.4 * down), layout="constrained")
    panels = picture.subplots(down, across, squeeze=False).ravel()
    for panel in panels[len(seen) :]:
        panel.set_axis_off()
    for panel, one in zip(panels, seen, strict=False):
        rows = one.maps[length]
        reach = float(rows.abs().max()) or 1.0
        image = panel.imshow(
            rows.numpy(),
            cmap="RdBu_r",
            vmin=-reach,
            vmax=reach,
            aspect="auto",
            interpolation="none",
        )
        panel.set_title(one.name, fontsize=10)
        panel.set_xlabel("feature", fontsize=9)
        panel.set_ylabel("position", fontsize=9)
        panel.tick_params(labelsize=8)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        picture.colorbar(image, ax=panel).ax.tick_params(labelsize=7)
    picture.suptitle(f"Vectors of a sequence of {length}")
    return picture


def page(seen: Sequence[Observation], lengths: Sequence[int], folder: Path) -> str:
    """The whole page."""
    names = {one.name for one in seen}
    said = [
        "What the vectors of an encoding know, without any training (dual positional encoding, "
        "Definitions 3.1 and 3.2). *Forward-aware*: at one distance to the start, a slice of the "
        "features is the same in sequences of every length, and tells positions apart; "
        "*backward-aware*: the same from the end. A slice that is the same and tells none apart, "
        "as a feature that hardly changes, is named and makes nothing aware. Learned vectors are "
        "as they are drawn.",
        f"Compared are lengths {MEASURED[0]} to {MEASURED[-1]}. What is added to a sentence that "
        "repeats one word counts as its vectors, so that encodings which look at words or change "
        "them are measured, too.",
    ]
    parts = ["# Do positions know the start and the end?", *said]
    parts += view_of_figure(folder / "awareness")
    parts.append(markdown_table(HEADER, lines(seen), left=5))
    parts.append(
        "*3.1 misses*: by how much P(b) is no function of P(a) that is the same for all lengths, a "
        "and b counted from the start (Property 3.1): of the features of the slice, the largest "
        "difference at any b between lengths that agree at some a. *3.2 misses*: the same, counted "
        "from the end (Property 3.2). A dash: there is no slice. "
        "*Sum formula misses*: what one formula for P(x+y) in products of features of P(x) and "
        "P(y), for all lengths, does not reach (Eq. 15, Appendix E), as a share of the vectors. "
        "*Between centres*: of an encoding inside the attention, by how much what a key gets "
        "differs between the tokens that look at it (Corollary 3.5), as a share of the largest "
        "score; that is why no such encoding knows where a sequence begins or ends."
    )
    if names.issuperset(PAPER):
        parts += ["## What the paper saw", _against_the_paper(seen)]
    for length in lengths:
        heading = FIGURES.get(length, "")
        parts.append(f"## Length {length}" + (f", the paper's {heading}" if heading else ""))
        parts.append(f"![Vectors of a sequence of {length}](length_{length}.png)")
    parts.append(
        "As SVG: "
        + ", ".join(f"[length {n}](length_{n}.svg)" for n in lengths)
        + f". The numbers are in [awareness.json](awareness.json). Made by `{COMMAND} --output "
        f"{folder.as_posix()}`."
    )
    return "\n\n".join(parts) + "\n"


def _against_the_paper(seen: Sequence[Observation]) -> str:
    """Compare the measures with Theorem 3.4, Corollary 3.6 and Appendices E and G."""
    claimed = {
        "sinusoidal": (True, False),
        "rspe": (False, True),
        "aspe": (False, False),
        "dpe": (True, True),
        "2dspe": (True, False),
    }
    found = {
        one.name: (one.awareness.is_forward_aware, one.awareness.is_backward_aware)
        for one in seen
        if one.awareness is not None
    }
    same = [name for name, both in claimed.items() if found[name] == both]
    other = [name for name in claimed if name not in same]
    text = (
        "SPE (`sinusoidal`) is forward-aware, RSPE backward-aware, ASPE neither, DPE both: in its "
        "heat maps the first row of SPE is the same at both lengths, and so are both halves of "
        f"DPE's, one from the top and one from the bottom. Here the same holds of {len(same)} of "
        f"{len(claimed)}"
    )
    text += f"; otherwise: {', '.join(f'`{name}`' for name in other)}." if other else "."
    return (
        f"{text} 2DSPE has the position in one half and the length in the other, so that it is "
        "forward-aware; the distance to the end is in it, but in no slice of it."
    )
