"""Tables that are no paper's: perplexity beyond the training length, BLEU by source length."""

from dataclasses import replace

from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4, TABLE_8
from fairseq_plugins.papers.tables import Adapted, Column, Figure, Table, without_paper

FACTORS = (1, 2, 4, 8)  # lengths of the columns, in multiples of the training length
EXTRAPOLATES = 5.0  # per cent by which the perplexity of an encoding that extrapolates may rise
SLIDING = "_sliding"  # suffix of the metrics in sliding windows
# Trained models whose positions are scaled at evaluation by the length over the training length
# (Dynamic Scaling: YaRN, Section 3.3), or whose position table is extended.
ADAPTED = {
    "rope_dynamic_interpolation": Adapted("rope_only", "none+rope_interpolated"),
    "rope_dynamic_ntk": Adapted("rope_only", "none+rope_ntk"),
    "rope_dynamic_yarn": Adapted("rope_only", "none+yarn"),
    "lrpe_type2_dynamic_yarn": Adapted("lrpe_type2_only", "none+yarn_lrpe"),
    "learned_copied": Adapted("learned", grow_table="copy"),
    "learned_interpolated": Adapted("learned", grow_table="interpolate"),
    "learned_hierarchical": Adapted("learned", grow_table="hierarchical"),
}


def length_metric(factor: int) -> str:
    """Return the metric of the perplexity at a multiple of the training length."""
    return f"ppl_{factor}x"


def bleu_metric(bucket: str) -> str:
    """Return the metric of BLEU of sentences whose source has so many words, as 11-20 or 51+."""
    return f"bleu_{bucket.replace('-', '_').replace('+', '_more')}"


BUCKETS = ("1-10", "11-20", "21-30", "31-40", "41-50", "51+")  # words of a source
_COLUMNS = tuple(Column(length_metric(factor), f"PPL at {factor}x") for factor in FACTORS)


# On language models, except Ruoss et al.
_SAW = (
    (
        "ALiBi (Press et al. 2022)",
        "trained on 1,024 tokens, it has at 2,048 tokens the perplexity of sinusoids that are "
        "trained on 2,048. Sinusoids fail soon beyond the training length, rotary embeddings "
        "later, and T5's bias later still.",
    ),
    (
        "KERPLE (Chi et al. 2022)",
        "its kernels of the distance extrapolate, the logarithmic one very well on three corpora.",
    ),
    (
        "Sandwich (Chi et al. 2022)",
        "ALiBi extrapolates since it acts like a window no wider than the training length; "
        "Sandwich, which has no parameters either, also uses tokens that are farther away.",
    ),
    (
        "FIRE (Li et al. 2024)",
        "it can represent T5's bias, ALiBi and KERPLE, and extrapolates better than these.",
    ),
    (
        "CoPE (Golovneva et al. 2024)",
        "positions that are counted by content extrapolate better than absolute and relative "
        "embeddings of token positions.",
    ),
    (
        "YaRN (Peng et al. 2023)",
        "RoPE fails beyond the training length. Its stretched variants extrapolate, YaRN best, "
        "mostly after some training on longer texts, which is not done here.",
    ),
    (
        "Randomised positions (Ruoss et al. 2023)",
        "on algorithmic tasks, not on texts, they extrapolate with 12.0 % more accuracy on average "
        "than other encodings.",
    ),
    (
        "The survey (Su 2021)",
        "a learned table ends at the training length, unless it is decomposed hierarchically. "
        "Sinusoids can be expected to extrapolate to some degree, and recursive encodings well.",
    ),
)
# The papers above measured causal models.
_SAW_OF_MASKED = (
    (
        "The papers that are implemented here",
        "none measured the loss of masked models beyond the training length. The closest "
        "observations follow.",
    ),
    (
        "On Position Embeddings in BERT (Wang et al. 2021), Appendix F",
        "not the loss but SQuAD, whose passages are longer than the 128 tokens of the "
        "pre-training: learnable sinusoidal embeddings and relative ones are better there than "
        "fully learned ones, whose vectors beyond 128 are trained in fine-tuning alone.",
    ),
    ("LRPE (Qin et al. 2023)", "masked models at the training length alone (Table 8)."),
    (
        "The survey (Su 2021)",
        "no measurement; the learned table of a BERT ends at the training length, unless it is "
        "decomposed hierarchically.",
    ),
)

EXTRAPOLATION = Table(
    name="extrapolation",
    source="Beyond the training length",
    title="perplexity of Table 2's language models at multiples of their training length",
    experiment="extrapolation",
    columns=_COLUMNS,
    rows=without_paper(TABLE_2).rows,
    takes_any_encoding=True,
    figures=(Figure("lengths"),),
    lengths=FACTORS,
    adapted=ADAPTED,
    evaluate_only=True,
    published_observations=_SAW,
)
MASKED_EXTRAPOLATION = replace(
    EXTRAPOLATION,
    name="extrapolation_masked",
    source="Beyond the training length, masked models",
    title="perplexity of Table 8's masked language models at multiples of their training length",
    experiment="masked_extrapolation",
    rows=without_paper(TABLE_8).rows,
    rank=length_metric(4),  # as far as the position tables of Table 8's small models go
    published_observations=_SAW_OF_MASKED,
)
TRANSLATION_LENGTHS = Table(
    name="translation_lengths",
    source="BLEU by the length of the source",
    title="BLEU of Table 4's translation models on test sentences, by the number of words of their "
    "source",
    experiment="translation_lengths",
    columns=(
        Column("test_bleu", "BLEU (all)", higher_is_better=True),
        *(Column(bleu_metric(name), f"BLEU ({name})", True) for name in BUCKETS),
    ),
    rows=without_paper(TABLE_4).rows,
    rank="test_bleu",
    extra_attentions=TABLE_4.extra_attentions,
    figures=(Figure("buckets"),),
    evaluate_only=True,
    published_observations=(
        ("LRPE (Qin et al. 2023)", "BLEU of all sentences together (Table 4), not by length."),
    ),
)
