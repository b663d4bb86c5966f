"""Figures of the frequencies of sinusoids in "On Position Embeddings in BERT": 3 and 4."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fairseq_plugins.analysis import LENGTH
from fairseq_plugins.analysis.figure_files import Lines
from fairseq_plugins.analysis.figure_inputs import (
    BERT_WIDTH,
    Figure,
    FigureInput,
    FigureSizes,
    Numbers,
)
from fairseq_plugins.analysis.position_vectors import closeness, describe_rise, first_rise, waves
from fairseq_plugins.analysis.sentences import sentences, summarise, summarise_values
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.encodings.frequencies import geometric
from fairseq_plugins.papers.bert_figures import CLASSES, SPANS


def fixed_waves(inputs: Sequence[FigureInput], sizes: FigureSizes) -> tuple[Numbers, list[str]]:
    """Measure cos(w_i m) of some frequencies, and psi(m) of all BERT's (Figure 3)."""
    offsets = torch.arange(sizes.length or LENGTH)
    frequencies = geometric(BERT_WIDTH // 2, BERT_WIDTH)
    picked = frequencies[[0, 64, 128, 192, 383]]
    psi = closeness(frequencies, offsets)
    rise, bottom, count = first_rise(psi), int(psi.argmin()), len(offsets)
    summary = (
        f"With the {BERT_WIDTH // 2} fixed frequencies of D = {BERT_WIDTH}, psi falls from "
        f"{psi[0]:.0f} at m = 0 and first rises at m = {rise}, so that it is monotone for 0 to "
        f"{(rise or count) - 1}. Within {count} offsets its lowest value is {psi[bottom]:.1f}, "
        f"at m = {bottom}: after the first rise, psi still falls mostly, but not "
        "everywhere."
    )
    numbers = {
        "offsets": offsets,
        "psi": psi,
        "first_rise": rise,
        "frequencies": picked,
        "waves": {f"w = {w:.2g}": waves(w.view(1), offsets)[0] for w in picked},
    }
    return numbers, [summary]


def fixed_lines(numbers: Numbers) -> Lines:
    """Make the panels of Figure 3."""
    xs = numbers["offsets"].tolist()
    curves = {name: (xs, wave.tolist()) for name, wave in numbers["waves"].items()}
    psi = {f"D = {BERT_WIDTH}": (xs, numbers["psi"].tolist())}
    return [
        ("(a) of some frequencies", "offset m", "cos(w m)", curves),
        ("(b) of all", "offset m", "psi(m)", psi),
    ]


def learned_waves(inputs: Sequence[FigureInput], sizes: FigureSizes) -> tuple[Numbers, list[str]]:
    """Measure learned and fixed frequencies, and psi of each (Figure 4)."""
    with_waves = [(s, w) for s in inputs if (w := s.frequencies()) is not None]
    found = {s.label: w for s, w in sizes.require(with_waves, "absolute sinusoids")}
    widths = {label: 2 * len(w) for label, w in found.items()}
    width = next(iter(widths.values()))
    if len({*widths.values()}) > 1:
        sizes_found = ", ".join(f"{label} has {size}" for label, size in widths.items())
        raise OptionError(f"figure 4 needs models of one number of features, but {sizes_found}")
    every = {"default": geometric(width // 2, width), **found}
    offsets = torch.arange(sizes.length or LENGTH)
    psi = {name: closeness(w, offsets) / len(w) for name, w in every.items()}
    lines = [
        [name, f"{(w < every['default']).double().mean():.0%}", describe_rise(psi[name])]
        for name, w in every.items()
    ]
    header = ["", "frequencies below the fixed ones", "psi first rises at"]
    numbers = {"frequencies": every, "offsets": offsets, "psi": psi}
    return numbers, [markdown_table(header, lines, left=1)]


def learned_lines(numbers: Numbers) -> Lines:
    """Make the panels of Figure 4."""
    offsets, every = numbers["offsets"].tolist(), numbers["frequencies"]
    ranked = {name: (range(len(w)), w.tolist()) for name, w in every.items()}
    psi = {name: (offsets, values.tolist()) for name, values in numbers["psi"].items()}
    return [
        ("(a) frequencies", "i", "w_i", ranked),
        ("(b) dot products of positions", "offset m", "psi(m) / psi(0)", psi),
    ]


def check_frequencies(numbers: Numbers) -> str:
    """Check Figure 4: learned frequencies are below the fixed ones, and psi is flatter."""
    every, psi = numbers["frequencies"], {**numbers["psi"]}
    fixed = psi.pop("default")
    shares = {
        name: float((values < every["default"]).double().mean())
        for name, values in every.items()
        if name != "default"
    }
    far = slice(len(fixed) // 2, None)
    return sentences(
        summarise_values(
            "Learned frequencies are mostly below the fixed ones",
            shares,
            lambda share: share > 0.5,
            ".0%",
        ),
        summarise_values(
            "Far positions are closer than with fixed ones (mean of psi(m) / psi(0) over the "
            "second half of the offsets minus that with fixed ones)",
            {name: float((values[far] - fixed[far]).mean()) for name, values in psi.items()},
            lambda more: more > 0,
            "+.3g",
        ),
        *_check_tasks(psi),
    )


def _check_tasks(psi: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Compare psi after fine-tuning for spans and for classes; () without models of both."""
    spans, classes = (
        {name: values for name, values in psi.items() if name.startswith(label)}
        for label in (SPANS, CLASSES)
    )
    if not (spans and classes):
        return ()
    rises = {name: first_rise(v) or len(v) for name, v in {**spans, **classes}.items()}
    most = max(rises[name] for name in classes)
    distances = {
        name: [
            sum(float((values - tuned).abs().mean()) for tuned in side.values()) / len(side)
            for side in (classes, spans)
        ]
        for name, values in psi.items()
        if name not in {**spans, **classes}
    }
    return (
        summarise(
            "Models fine-tuned for spans are monotone over more offsets than all fine-tuned for "
            f"classes (where psi first rises; for classes at {most} at latest)",
            {name: (rises[name] > most, str(rises[name])) for name in spans},
        ),
        summarise(
            "Before fine-tuning, psi is closer to that of classes than to that of spans (mean "
            "distances)",
            {
                name: (near < far, f"{near:.3g} against {far:.3g}")
                for name, (near, far) in distances.items()
            },
        ),
    )


FIGURES = {
    3: Figure(
        "Fixed sinusoids by offset",
        "psi(m), the dot product at offset m, falls up to m = 50, roughly (its first rise is at "
        "m = 44); small frequencies hardly tell positions apart, with large ones it drops at once.",
        fixed_waves,
        lines=fixed_lines,
        untrained=("sinusoidal",),
        takes_inputs=False,
    ),
    4: Figure(
        "Learned frequencies of the sinusoidal APE",
        "learned frequencies are mostly below the fixed ones; far positions are closer than with "
        "fixed ones, and models fine-tuned for spans are monotone over more offsets than those for "
        "classes, to which the pre-trained model is closer.",
        learned_waves,
        lines=learned_lines,
        check=check_frequencies,
    ),
}
