"""Claims of the survey of position encodings, and of papers on single encodings."""

from functools import partial

from fairseq_plugins.papers.claims import Claim, Comparison, Floor, Side, Unjudged, computed
from fairseq_plugins.papers.extrapolation import GOES_ON, length_metric

SURVEY = "Survey of position encodings"
# The appendix on language models defines these encodings and makes no claims about them.
SINGLE = "Papers on single encodings"
_HAVIV = "Haviv et al. 2022, abstract"
_PRESS = "Press et al. 2022, Figure 1"
_BESIDE_BASE = "as in Table 2, the relative ones have Base's sinusoids beside them"


def _longer(
    row: str, factor: int, text: str, claimed: Side, paper: str, place: str, note: str = ""
) -> Claim:
    """Return a claim on a row's perplexity at a multiple of the training length, against 1x.

    The row has the encoding alone, as in the papers: `rope_only`, since `rope` also has Base's
    sinusoids. `below` allows a rise by `GOES_ON` per cent.
    """
    return Claim(
        f"longer-{row}-{factor}x" + ("-survey" if paper == SURVEY else ""),
        paper,
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
            by=-GOES_ON if claimed == "below" else 0.0,
            relative=True,
            second_metric=length_metric(1),
        ),
        note=note,
    )


def _goes_on(row: str, factor: int, label: str, paper: str, place: str, note: str = "") -> Claim:
    text = f"{label} to go on working; the perplexity rises by {GOES_ON:g} % at most"
    margin = f"The {GOES_ON:g} % are this project's."
    return _longer(row, factor, text, "below", paper, place, " ".join(filter(None, (note, margin))))


def _becomes_worse(row: str, factor: int, label: str) -> Claim:
    return _longer(row, factor, f"{label} to become worse", "above", SINGLE, _PRESS)


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
    _computed("learned_table_ends", "Trainable", "a learned table ends with its length"),
    _computed(
        "hierarchical_reaches_the_square",
        "Trainable",
        "a hierarchical decomposition continues a learned table",
    ),
    _computed(
        "sinusoids_of_a_sum",
        "Sinusoidal",
        "the sinusoid of a sum of positions is a combination of the two sinusoids",
    ),
    _computed(
        "clipped_table_serves_any_length",
        "Classic",
        "with clipping finitely many vectors serve text of any length",
    ),
    _computed(
        "t5_buckets_widen",
        "T5",
        "T5's buckets hold one distance each up to 7, then more and more, up to a distance where "
        "they clip",
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
        "a convolution knows positions from the zeros around the sequence",
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
    Claim(
        "product-learned",
        SURVEY,
        "Product-based",
        "vanilla attention, language model: a learned table multiplied with the tokens is better "
        "than one added to them",
        Comparison("table2", "test_ppl", "vanilla", ("product",), ("learned",), "below"),
    ),
    Claim(
        "causal-none",
        SINGLE,
        _HAVIV,
        "vanilla attention, causal language model: without any encoding it works, far below the "
        "perplexity of words' frequencies",
        Floor("table2", "test_ppl", "vanilla", "none", "unigram", "below"),
    ),
    Claim(
        "causal-none-learned",
        SINGLE,
        _HAVIV,
        "vanilla attention, causal language model: without any encoding it is not worse than with "
        "learned embeddings, by 1 % of the perplexity at most",
        Comparison(
            "table2",
            "test_ppl",
            "vanilla",
            ("none",),
            ("learned",),
            "below",
            by=-1.0,
            relative=True,
        ),
        note="The paper says competitive; the 1 % is this project's.",
    ),
    Claim(
        "bidirectional-none",
        SURVEY,
        "Introduction",
        "vanilla attention, masked language model: without a causal mask positions are needed; "
        "without any encoding it is worse than with sinusoids (Base)",
        Comparison("table8", "valid_ppl", "vanilla", ("none",), ("base",), "above"),
    ),
    Claim(
        "relative-absolute",
        SURVEY,
        "Relative position encoding",
        "vanilla attention, language model: on average relative encodings (Shaw, XL, T5, DeBERTa) "
        "are better than absolute ones (learned, sinusoidal)",
        Comparison(
            "table2",
            "test_ppl",
            "vanilla",
            ("shaw", "xl", "t5", "deberta"),
            ("learned", "sinusoidal"),
            "below",
        ),
        note=_BESIDE_BASE,
    ),
    *(_goes_on("alibi", factor, "ALiBi is said", SINGLE, _PRESS) for factor in (2, 4)),
    _goes_on(
        "t5_only",
        2,
        "T5's bias is said",
        SINGLE,
        "Press et al. 2022, Section 2",
        "Trained on samples of 512, it is said to go on for some 600 tokens more.",
    ),
    _becomes_worse("t5_only", 4, "T5's bias is said"),
    *(_becomes_worse("rope_only", factor, "RoPE is said") for factor in (2, 4)),
    *(_becomes_worse("sinusoidal", factor, "sinusoids are said") for factor in (2, 4)),
    *(
        _goes_on(
            "learned_hierarchical",
            factor,
            "a learned table, continued by its hierarchical decomposition, is said",
            SURVEY,
            "Trainable",
            "Without training on. How much is decent, the survey does not say.",
        )
        for factor in (2, 4)
    ),
    _goes_on(
        "sinusoidal",
        2,
        "sinusoids are said, to some degree,",
        SURVEY,
        "Sinusoidal",
        "How much is some degree, the survey does not say.",
    ),
)

SURVEY_UNJUDGED = (
    Unjudged(
        SURVEY,
        "Recursive",
        "a recurrent layer before the first attention makes encodings unnecessary",
        "no model here has one",
    ),
    Unjudged(
        SURVEY,
        "Recursive",
        "recursive encodings extrapolate well in theory",
        "no number says how well; no trained one is measured beyond its length",
    ),
    Unjudged(
        SURVEY,
        "Recursive",
        "recursive encodings sacrifice parallelism and may be slow",
        "no number; `python -m benchmarks` times them",
    ),
    Unjudged(
        SURVEY,
        "DeBERTa",
        "absolute positions help in some scenarios",
        "no number, and any one scenario would do; `deberta_emd` has them in its last layers",
    ),
    Unjudged(
        SURVEY,
        "Complex",
        "complex order is used in a model that is complex throughout",
        "a description; `ComplexEncoderLayer` is a layer of such a model",
    ),
)
