"""Awareness of encodings as text and files: heat maps, JSON, and a Markdown page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from torch import Tensor

from fairseq_plugins.analysis.awareness import (
    Awareness,
    Side,
    as_words,
    centre_gap,
    measure_awareness,
    slices,
)
from fairseq_plugins.analysis.figure_files import Panel, draw_panels, round_digits
from fairseq_plugins.analysis.position_rows import added_scores, build_plain, embeds, input_rows
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pages import (
    Page,
    Section,
    bullets,
    figure_site_link,
    provenance_section,
)
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.common.tables import columns, markdown_table
from fairseq_plugins.encodings import ENCODINGS, expand_name

MEASURED = range(2, 41)  # lengths that are compared
PAPER = ("sinusoidal", "rspe", "aspe", "dpe", "2dspe")  # the paper's, SPE first
FIGURES = {10: "Figure 2", 20: "Figure 6"}  # the paper's, by length


@dataclass(frozen=True)
class MeasuredEncoding:
    """An encoding and its awareness."""

    name: str
    awareness: Awareness | None  # None for an encoding without position vectors
    maps: dict[int, Tensor]  # vectors (T, C) by length
    centre_gap: float | None  # Corollary 3.5, for an encoding inside the attention; else None


def absolute_names() -> list[str]:
    """Return the single encodings that act on token embeddings, the paper's first."""
    single = (name for name in ENCODINGS if len(expand_name(name)) == 1)
    others = sorted(name for name in single if embeds(name) and name not in PAPER)
    return [*PAPER, *others]


def observe(
    name: str, *, width: int, lengths: Sequence[int], seed: int, **options: Any
) -> MeasuredEncoding:
    """Measure an encoding.

    Args:
        name: its name.
        width: features of a vector.
        lengths: of the heat maps.
        seed: seed of random encodings.
        options: options of the encoding.

    Raises:
        ValueError: an unknown name, or an invalid option.
    """
    # Vectors of some encodings depend on the length for which they are built, which must be the
    # same for all measures, whatever the maps' lengths are.
    measured, drawn = (
        build_plain(name, width=width, longest=longest, seed=seed, **options)
        for longest in (MEASURED[-1], max(*MEASURED, *lengths))
    )
    gap = None
    if measured.layers[0] is not None:
        gap = centre_gap(added_scores(measured, MEASURED[-1], seed=seed))
    encoding, longer = measured.inputs[0], drawn.inputs[0]
    if encoding is None or longer is None:
        return MeasuredEncoding(name, None, {}, gap)
    rows = {length: input_rows(encoding, length, seed=seed) for length in MEASURED}
    maps = {length: input_rows(longer, length, seed=seed) for length in lengths}
    return MeasuredEncoding(name, measure_awareness(rows), maps, gap)


HEADER = (
    "encoding",
    "forward-aware",
    "its features",
    "backward-aware",
    "its features",
    "3.1 error",
    "3.2 error",
    "sum formula error",
    "between queries",
)

LEGEND = (
    "*Forward-aware*: at one distance to the start, a slice of the features is equal in "
    "sequences of every length and differs between positions; *backward-aware*: the same from "
    "the end. A slice that is equal at all positions is listed, but does not count.",
    "*3.1 error*: how far P(b) is from one function of P(a) for all lengths, counted from the "
    "start (Property 3.1): the largest difference of the slice at any b between lengths that "
    "agree at some a. *3.2 error*: the same from the end (Property 3.2).",
    "*Sum formula error*: the residual of one formula for P(x+y) in products of features of "
    "P(x) and P(y) for all lengths (Eq. 15, Appendix E), as a share of the vectors.",
    "*Between queries*: for an encoding inside the attention, how much a key's score differs "
    f"between queries (Corollary 3.5) at length {MEASURED[-1]}, as a share of the largest score; "
    "above 0, the encoding gives neither a sequence's start nor its end.",
    "A dash: there is no slice. Learned vectors have their initial values.",
)


def table_rows(measured: Sequence[MeasuredEncoding]) -> list[list[str]]:
    """Make a table row for each encoding, with the columns of `HEADER`."""
    found = []
    for one in measured:
        cells, known = ["no", "-", "no", "-", "-", "-", "-"], one.awareness
        if known is not None:
            sides = known.forward, known.backward
            aware = [("yes" if s.is_aware else "no", as_words(s.features)) for s in sides]
            misses = [_gap(side.function_gap, 4) for side in sides]
            cells = [*aware[0], *aware[1], *misses, f"{known.sum_error:.4f}"]
        found.append([one.name, *cells, _gap(one.centre_gap, 3)])
    return found


def _gap(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def as_text(measured: Sequence[MeasuredEncoding]) -> str:
    """Format the measures for a terminal, with a legend."""
    legend = (fill(text.replace("*", ""), 100) for text in LEGEND)
    return "\n".join([columns([list(HEADER), *table_rows(measured)], left=5), "", *legend])


def write(measured: Sequence[MeasuredEncoding], folder: Path, command: str) -> None:
    """Write awareness.md and .json, and for each length length_<n>.png and .svg.

    command: the command that measures, for the page.
    """
    write_json(folder / "awareness.json", to_json(measured))
    lengths = next((list(one.maps) for one in measured if one.maps), [])
    for length in lengths:
        save_picture(draw(measured, length), folder / f"length_{length}")
    page(measured, lengths, folder, command).write(folder / "awareness.md")


def to_json(measured: Sequence[MeasuredEncoding]) -> dict[str, Any]:
    """Return all measures and the heat maps' vectors."""
    return {
        "what": "forward- and backward-awareness of position vectors",
        "lengths_compared": [MEASURED[0], MEASURED[-1]],
        "encodings": {one.name: _measures(one) for one in measured},
    }


def _measures(one: MeasuredEncoding) -> dict[str, Any]:
    if (known := one.awareness) is None:
        return {"centre_gap": one.centre_gap}
    sides = {"forward": known.forward, "backward": known.backward}
    measures: dict[str, Callable[[Side], Any]] = {
        "aware": lambda side: side.is_aware,
        "features": lambda side: slices(side.features),
        "apart": lambda side: side.apart,
        "function_gap": lambda side: side.function_gap,
    }
    return {
        "centre_gap": one.centre_gap,
        **{f"{n}_{key}": of(side) for key, of in measures.items() for n, side in sides.items()},
        "sum_formula_error": known.sum_error,
        "largest": known.size,
        "vectors": {str(n): round_digits(rows, 3) for n, rows in one.maps.items()},
    }


def draw(measured: Sequence[MeasuredEncoding], length: int) -> Any:
    """Draw heat maps (positions down, features across) of the vectors at one length.

    Raises:
        OptionError: no encoding has vectors.
    """
    panels = [
        Panel(one.name, one.maps[length], dark=False, axes=("feature", "position"))
        for one in measured
        if one.maps
    ]
    if not panels:
        raise OptionError("ENCODING must act on token embeddings to have vectors to draw")
    picture = draw_panels(panels, size=(3.4, 2.4))
    picture.suptitle(f"Position vectors, sequence of {length}")
    return picture


def page(
    measured: Sequence[MeasuredEncoding], lengths: Sequence[int], folder: Path, command: str
) -> Page:
    """Make the page."""
    caption = (
        "Measures of untrained position vectors (dual positional encoding, Definitions 3.1 and "
        f"3.2), compared between lengths {MEASURED[0]} and {MEASURED[-1]}."
    )
    sections = []
    if {one.name for one in measured}.issuperset(PAPER):
        sections.append(Section("What the paper found", [_against_the_paper(measured)]))
    for length in lengths:
        figure = FIGURES.get(length, "")
        heading = f"Length {length}" + (f", the paper's {figure}" if figure else "")
        picture = f"![Vectors of a sequence of {length}](length_{length}.png)"
        sections.append(Section(heading, [picture]))
    pictures = ", ".join(f"[length {n}](length_{n}.svg)" for n in lengths)
    svg = f"As SVG: {pictures}. " if lengths else ""
    origin = provenance_section(
        "The vectors are what an encoding adds to a sentence that repeats one word, so that "
        "encodings that depend on words or change them are measured too.",
        f"{svg}The numbers are in [awareness.json](awareness.json). Made by `{command}`.",
        *figure_site_link(folder / "awareness"),
    )
    result = [markdown_table(HEADER, table_rows(measured), left=5), bullets(LEGEND)]
    title = "Do position vectors encode the start and the end?"
    return Page(title, caption, result, [*sections, origin])


def _against_the_paper(measured: Sequence[MeasuredEncoding]) -> str:
    """Compare the measures with Theorem 3.4, Corollary 3.6 and Appendices E and G."""
    claimed = {
        "sinusoidal": (True, False),
        "rspe": (False, True),
        "aspe": (False, False),
        "dpe": (True, True),
        "2dspe": (True, False),
    }
    found = {
        one.name: (one.awareness.forward.is_aware, one.awareness.backward.is_aware)
        for one in measured
        if one.awareness is not None
    }
    same = [name for name, both in claimed.items() if found[name] == both]
    other = [name for name in claimed if name not in same]
    text = (
        "SPE (`sinusoidal`) is forward-aware, RSPE backward-aware, ASPE neither, DPE both: in its "
        "heat maps the first row of SPE is the same at both lengths, and so are both halves of "
        f"DPE's, one from the top and one from the bottom. Here {len(same)} of "
        f"{len(claimed)} agree"
    )
    text += f"; otherwise: {', '.join(f'`{name}`' for name in other)}." if other else "."
    return (
        f"{text} 2DSPE has the position in one half and the length in the other, so that it is "
        "forward-aware; the distance to the end is in the vector, but in no slice of it."
    )
