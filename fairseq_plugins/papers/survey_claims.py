"""What the survey of position encodings and the appendix on language models claim."""

from fairseq_plugins.papers.claims import Claim, Comparison, Floor, Side
from fairseq_plugins.papers.extrapolation import GOES_ON, length_metric

SURVEY = "Survey of position encodings"
APPENDIX = "Position encodings of language models"
_BESIDE_BASE = "as in Table 2, the relative ones have Base's sinusoids beside them"


def _longer(row: str, paper: str, text: str, claimed: Side, note: str = "") -> list[Claim]:
    """That a row's perplexity at two and four times the training length is so, seen from 1x.

    The row has the encoding alone, as the papers speak of it: `rope_only`, where `rope` has Base's
    sinusoids beside it.

    With `below` it may be above by `GOES_ON`.
    """
    return [
        Claim(
            f"longer-{row}-{factor}x",
            paper,
            "Extrapolation",
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
        for factor in (2, 4)
    ]


SURVEY_CLAIMS = (
    Claim(
        "causal-none",
        APPENDIX,
        "Appendix B, NoPE",
        "vanilla attention, causal language model: without any encoding it works, far below the "
        "perplexity of words' frequencies",
        Floor("table2", "test_ppl", "vanilla", "none", "unigram", "below"),
    ),
    Claim(
        "causal-none-learned",
        APPENDIX,
        "Appendix B, NoPE",
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
    ),
    Claim(
        "bidirectional-none",
        SURVEY,
        "Introduction",
        "vanilla attention, masked language model: without a causal mask positions are needed; "
        "without any encoding it is worse than with learned embeddings",
        Comparison("bert_continued", "valid_ppl", "vanilla", ("none",), ("learned",), "above"),
    ),
    Claim(
        "relative-absolute",
        SURVEY,
        "Relative position encoding",
        "vanilla attention, language model: relative encodings (Shaw, XL, T5, DeBERTa) are better "
        "than absolute ones (learned, sinusoidal)",
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
    *_longer(
        "alibi",
        APPENDIX,
        f"ALiBi goes on working, its perplexity rises by {GOES_ON:g} % at most",
        "below",
    ),
    *_longer(
        "t5_only",
        APPENDIX,
        f"T5's bias goes on working, the perplexity rises by {GOES_ON:g} % at most",
        "below",
    ),
    *_longer("rope_only", APPENDIX, "RoPE becomes worse", "above"),
    *_longer(
        "sinusoidal",
        SURVEY,
        f"sinusoids go on working to some degree, the perplexity rises by {GOES_ON:g} % at most",
        "below",
        "how much is still some degree, the survey does not say",
    ),
)
