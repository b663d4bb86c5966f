"""The figures of "On Position Embeddings in BERT" that encodings or checkpoints are enough for.

Figure 5 is of results of trainings, in `report.correlation_by_offset`; Figure 7, SQuAD while
pre-training goes on, needs a training that is fine-tuned after every epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fairseq_plugins.analysis.agreement import (
    Agrees,
    of_correspondence,
    of_families,
    of_frequencies,
    of_identical_words,
    of_relative,
    of_training,
    of_vectors,
)
from fairseq_plugins.analysis.figure_files import Made
from fairseq_plugins.analysis.probe_figures import families, identical_words, position_positions
from fairseq_plugins.analysis.subjects import BERT_HEADS, BERT_WIDTH, Sizes, Subject, untrained
from fairseq_plugins.analysis.vector_figures import (
    dots,
    fixed_waves,
    learned_waves,
    relative_cosines,
)

Maker = Callable[[Sequence[Subject], Sizes], Made]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes:
        make: from what is shown.
        title: what it shows.
        paper: what the paper saw in it.
        untrained: names of encodings that are shown where no checkpoint is given; () where it
            needs one.
        takes_subjects: whether checkpoints change it.
        agrees: what its numbers say to that.
    """

    make: Maker
    title: str
    paper: str
    untrained: tuple[str, ...] = ()
    takes_subjects: bool = True
    agrees: Agrees = lambda numbers: ""


_PROBED = (
    "clear translation invariance, local monotonicity and symmetry under almost all embeddings, a "
    "learnable sinusoidal RPE that looks ahead and back unequally, and a white band along the "
    "diagonal, clearer before the softmax, under the learned RPE, the learnable sinusoidal RPE and "
    "combinations with them."
)
_UNTRAINED = (
    f"Fixed sinusoids in the size of BERT-base ({BERT_WIDTH} features, {BERT_HEADS} heads), which "
    "no training changes; the paper's other panels are of trained models, for which the command "
    "takes checkpoints."
)
FIGURES: dict[int, Figure] = {
    1: Figure(
        dots,
        "Dot products between position vectors",
        "neighbouring absolute vectors are closer than far ones, learnable sinusoids more clearly; "
        "of learned relative vectors those of small offsets are unlike all others, and those "
        "beyond 20 are alike.",
        ("sinusoidal", "sinusoidal_rpe"),
        agrees=of_vectors,
    ),
    2: Figure(
        identical_words, "Identical words: scores and weights", _PROBED, agrees=of_identical_words
    ),
    3: Figure(
        fixed_waves,
        "Fixed sinusoids by offset",
        "psi is monotone for m between 0 and 50, roughly; small frequencies hardly tell positions "
        "apart, large ones let it fall at once. (Its first rise is at m = 44.)",
        ("sinusoidal",),
        takes_subjects=False,
    ),
    4: Figure(
        learned_waves,
        "Learned frequencies of the sinusoidal APE",
        "learned frequencies are mostly below the fixed ones; far positions are closer than with "
        "fixed ones, and models fine-tuned for spans are monotone over more offsets than those for "
        "classes, which the pre-trained model is more like.",
        agrees=of_frequencies,
    ),
    6: Figure(
        relative_cosines,
        "Cosine similarity of relative vectors",
        "of learned relative vectors, those beyond offsets of 20 to 25 are not significantly "
        "different; vectors of one side are slightly more alike than those of two.",
        ("sinusoidal_rpe",),
        agrees=of_relative,
    ),
    8: Figure(
        dots,
        "Dot products between position vectors while training",
        "no pattern at first; with more steps translation invariance and local monotonicity "
        "emerge.",
        agrees=of_training,
    ),
    9: Figure(
        position_positions,
        "Position-position correspondence and the terms of Eq. 7",
        "some awareness of distance in the mean of P W_Q W_K^T P^T over heads.",
        agrees=of_correspondence,
    ),
    10: Figure(
        families,
        "Identical words in other models (with Table 7)",
        "GPT-2 is the most monotone, the least translation invariant, since its tokens also look "
        "at the first few, and the least symmetric; the encoder of machine translation looks "
        "slightly more ahead, BERT back.",
        agrees=of_families,
    ),
    11: Figure(
        identical_words,
        "Identical words: scores and weights of more embeddings",
        _PROBED,
        agrees=of_identical_words,
    ),
}


def make_figure(number: int, subjects: Sequence[Subject], sizes: Sizes) -> Made:
    """A figure of the paper; without subjects, of encodings that are not trained.

    Raises:
        ValueError: subjects that lack what it shows.
    """
    figure = FIGURES[number]
    if subjects or not figure.untrained:
        made = figure.make(subjects, sizes)
    else:
        made = figure.make([untrained(name, seed=sizes.seed) for name in figure.untrained], sizes)
        if figure.takes_subjects:
            made = replace(made, seen=(_UNTRAINED, *made.seen))
    return replace(made, agrees=figure.agrees(made.numbers))
