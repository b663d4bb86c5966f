"""Claims of the survey of position encodings (Su 2021), and of papers on single encodings."""

from functools import partial

from fairseq_plugins.papers.claims import Claim, Comparison, Side, Threshold, Unjudged, computed
from fairseq_plugins.papers.extrapolation import EXTRAPOLATES, length_metric
from fairseq_plugins.papers.lrpe_language_claims import perplexity

SURVEY = "Survey of position encodings"
# The appendix on language models defines these encodings and makes no claims about them.
SINGLE = "Papers on single encodings"
_survey, _single = partial(Claim, SURVEY), partial(Claim, SINGLE)
_HAVIV = "Haviv et al. 2022, abstract"
_PRESS = "Press et al. 2022, Figure 1"
_BESIDE_BASE = "As in Table 2, Shaw, XL and T5 have Base's sinusoids beside them."


def _longer(
    row: str, factor: int, text: str, claimed: Side, paper: str, place: str, note: str = ""
) -> Claim:
    """Return a claim on a row's perplexity at a multiple of the training length, against 1x.

    The row has the encoding alone, as in the papers: `rope_only`, since `rope` also has Base's
    sinusoids. `below` allows a rise by `EXTRAPOLATES` per cent.
    """
    return Claim(
        paper,
        f"longer-{row}-{factor}x" + ("-survey" if paper == SURVEY else ""),
        place,
        f"vanilla attention, language model, row `{row}`, at {factor} times the training "
        f"length: {text}",
        Comparison(
            "extrapolation",
            length_metric(factor),
            "vanilla",
            (row,),
            (row,),
            claimed,
            by=-EXTRAPOLATES if claimed == "below" else 0.0,
            relative=True,
            second_metric=length_metric(1),
        ),
        note=note,
    )


def _extrapolates(
    row: str, factor: int, text: str, paper: str, place: str, note: str = ""
) -> Claim:
    text = f"{text}; the perplexity rises by {EXTRAPOLATES:g} % at most"
    margin = f"The threshold of {EXTRAPOLATES:g} % is this project's."
    return _longer(row, factor, text, "below", paper, place, " ".join(filter(None, (note, margin))))


def _becomes_worse(row: str, factor: int, label: str) -> Claim:
    return _longer(row, factor, f"{label} become worse", "above", SINGLE, _PRESS)


_computed = partial(computed, SURVEY)
_MATHEMATICS = (
    _computed(
        "attention_ignores_order",
        "Introduction",
        "attention without an encoding and without a causal mask cannot tell the order of its "
        "tokens",
    ),
    _computed(
        "sinusoids_from_floater",
        "Recursive",
        "the sinusoidal encoding is a special case of FLOATER",
    ),
    _computed(
        "learned_table_ends", "Trainable", "a learned table has no vectors beyond its length"
    ),
    _computed(
        "hierarchical_reaches_the_square",
        "Trainable",
        "a hierarchical decomposition continues a learned table",
    ),
    _computed(
        "sinusoids_of_a_sum",
        "Sinusoidal",
        "the sinusoidal vector of a sum of positions is a combination of those of the summands",
    ),
    _computed(
        "clipped_table_serves_any_length",
        "Classic",
        "with clipping, finitely many vectors are enough for text of any length",
    ),
    _computed(
        "t5_buckets_widen",
        "T5",
        "T5's buckets hold one distance each up to 7, then more and more distances; beyond a "
        "largest distance all share one bucket",
    ),
    _computed(
        "rope_is_relative", "Fused", "RoPE's scores depend on positions by their difference alone"
    ),
    _computed(
        "rotated_values_tell_positions",
        "Fused",
        "RoPE on the values too adds absolute positions to relative scores",
    ),
    _computed(
        "zero_padding_tells_positions",
        "CNN",
        "a convolution encodes positions through the zeros around the sequence",
    ),
    computed(
        SINGLE,
        "rope_bound_decays",
        "RoFormer (Su et al. 2021), Section 3.4.3",
        "the bound on RoPE's scores decays with the distance in the long run",
    ),
)

SURVEY_CLAIMS = (
    *_MATHEMATICS,
    _survey(
        "product-learned",
        "Product-based",
        "vanilla attention, language model: a learned table multiplied with the tokens is better "
        "than one added to them",
        perplexity("vanilla", ("product",), ("learned",)),
    ),
    _single(
        "causal-none",
        _HAVIV,
        "vanilla attention, causal language model: without any encoding the model works, with a "
        "perplexity far below that of word frequencies",
        Threshold("table2", "test_ppl", "vanilla", ("none",), "unigram", "below"),
    ),
    _single(
        "causal-none-learned",
        _HAVIV,
        "vanilla attention, causal language model: without any encoding the model is as good as "
        "with learned embeddings; its perplexity is at most 1 % higher",
        perplexity("vanilla", ("none",), ("learned",), by=-1.0, relative=True),
        note='The paper says "competitive"; the threshold of 1 % is this project\'s.',
    ),
    _survey(
        "bidirectional-none",
        "Introduction",
        "vanilla attention, masked language model: without a causal mask positions are needed; "
        "without any encoding it is worse than with sinusoids (Base)",
        perplexity("vanilla", ("none",), ("base",), "above", "table8"),
    ),
    _survey(
        "relative-absolute",
        "Relative position encoding",
        "vanilla attention, language model: on average relative encodings (Shaw, XL, T5, DeBERTa) "
        "are better than absolute ones (learned, sinusoidal)",
        perplexity("vanilla", ("shaw", "xl", "t5", "deberta"), ("learned", "sinusoidal")),
        note=f'The survey says that they "usually" show "excellent performance". {_BESIDE_BASE}',
    ),
    *(_extrapolates("alibi", factor, "ALiBi extrapolates", SINGLE, _PRESS) for factor in (2, 4)),
    _extrapolates(
        "t5_only",
        2,
        "T5's bias extrapolates",
        SINGLE,
        "Press et al. 2022, Section 2",
        "The paper's model, trained on samples of 512, extrapolates by some 600 tokens.",
    ),
    _becomes_worse("t5_only", 4, "models with T5's bias"),
    *(_becomes_worse("rope_only", factor, "models with RoPE") for factor in (2, 4)),
    *(_becomes_worse("sinusoidal", factor, "models with sinusoids") for factor in (2, 4)),
    *(
        _extrapolates(
            "learned_hierarchical",
            factor,
            "a learned table, extended by its hierarchical decomposition, extrapolates",
            SURVEY,
            "Trainable",
            "The model is not trained further. The survey does not say what performance is "
            '"decent".',
        )
        for factor in (2, 4)
    ),
    _extrapolates(
        "sinusoidal",
        2,
        "sinusoids extrapolate to some degree",
        SURVEY,
        "Sinusoidal",
        'The survey does not say how much "some degree" is.',
    ),
)

_unjudged = partial(Unjudged, SURVEY)
SURVEY_UNJUDGED = (
    _unjudged(
        "Recursive",
        "a recurrent layer before the first attention makes encodings unnecessary",
        "no model here has one",
    ),
    _unjudged(
        "Recursive",
        "recursive encodings extrapolate well in theory",
        "the survey has no number; none is measured here beyond its training length",
    ),
    _unjudged(
        "Recursive",
        "recursive encodings sacrifice parallelism and may be slow",
        "the survey has no number; `python -m benchmarks` times them",
    ),
    _unjudged(
        "DeBERTa",
        "absolute positions help in some scenarios",
        "the survey has no number and names no scenario; `deberta_emd` has them in its last layers",
    ),
    _unjudged(
        "Complex",
        "complex order is used in a model that is complex throughout",
        "a description and no claim; `ComplexEncoderLayer` is a layer of such a model",
    ),
)
