"""What the survey of position encodings and the appendix on language models claim."""

from fairseq_plugins.papers.claims import Claim, Comparison, Floor, Unmeasured

SURVEY = "Survey of position encodings"
APPENDIX = "Position encodings of language models"
_LONGER = (
    "perplexity at two and four times the training length against that at the training length, "
    "which no table here measures yet"
)


def _longer(row: str, paper: str, text: str) -> Claim:
    return Claim(f"longer-{row}", paper, "Extrapolation", text, Unmeasured(_LONGER))


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
    ),
    _longer("alibi", APPENDIX, "ALiBi goes on working beyond the training length"),
    _longer("t5", APPENDIX, "T5's bias goes on working beyond the training length"),
    _longer("rope", APPENDIX, "RoPE becomes worse beyond the training length"),
    _longer(
        "sinusoidal", SURVEY, "sinusoids go on working, to some degree, beyond the training length"
    ),
)
