"""Tables of this project on lengths: extrapolation, and BLEU by the length of the source."""

from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4, TABLE_8
from fairseq_plugins.papers.tables import Adapted, Column, Figure, Row, Table

FACTORS = (1, 2, 4, 8)  # lengths of the columns, in multiples of the training length
GOES_ON = 5.0  # a perplexity that rises by at most so many per cent counts as extrapolating
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
    """Return the metric of BLEU of sentences by the words of their source, as 11-20 or 51+."""
    return f"bleu_{bucket.replace('-', '_').replace('+', '_more')}"


BUCKETS = ("1-10", "11-20", "21-30", "31-40", "41-50", "51+")  # words of a source
_COLUMNS = tuple(Column(length_metric(factor), f"PPL at {factor}x") for factor in FACTORS)


def _rows(table: Table) -> tuple[Row, ...]:
    """Return the rows of a table without published numbers."""
    return tuple(Row(row.name, row.label, row.group, {}) for row in table.rows)


# On language models, except Ruoss et al.
_SAW = (
    (
        "ALiBi (Press et al. 2022)",
        "trained on 1,024 tokens it has at 2,048 the perplexity of sinusoids trained on 2,048; "
        "sinusoids fail soon beyond the training, rotary embeddings later, T5's bias later still.",
    ),
    (
        "KERPLE (Chi et al. 2022)",
        "kernels of the distance go on beyond the training; the logarithmic one extrapolates very "
        "well on three corpora.",
    ),
    (
        "Sandwich (Chi et al. 2022)",
        "ALiBi goes on since it acts like a window that is no wider than the training; Sandwich, "
        "without parameters either, makes use of what is further away.",
    ),
    (
        "FIRE (Li et al. 2024)",
        "it can represent T5's bias, ALiBi and KERPLE, and goes on to longer contexts better than "
        "these.",
    ),
    (
        "CoPE (Golovneva et al. 2024)",
        "positions that are counted by the content go on to longer contexts better than absolute "
        "and relative embeddings of tokens.",
    ),
    (
        "YaRN (Peng et al. 2023)",
        "RoPE fails beyond the length of its training; its stretched variants go on, YaRN best, "
        "mostly after some training on longer texts, which is not done here.",
    ),
    (
        "Randomised positions (Ruoss et al. 2023)",
        "on algorithmic tasks, not on texts, encodings reach lengths that they were not trained "
        "on, with 12.0 % more accuracy on average.",
    ),
    (
        "The survey (Su 2021)",
        "a learned table ends with its training, unless it is decomposed hierarchically; sinusoids "
        "can be expected to go on to some degree, and recursive encodings well.",
    ),
)
# The papers above measured causal models.
_SAW_OF_MASKED = (
    (
        "The papers that are implemented here",
        "none measured the loss of masked models beyond the length of their training; what is "
        "nearest to it follows.",
    ),
    (
        "On Position Embeddings in BERT (Wang et al. 2021), Appendix F",
        "not the loss but SQuAD, whose passages are longer than the 128 tokens of the "
        "pre-training: learnable sinusoidal embeddings and relative ones answer better there than "
        "fully learned ones, whose vectors beyond 128 are drawn and then fine-tuned.",
    ),
    ("LRPE (Qin et al. 2023)", "masked models at the length of their training alone (Table 8)."),
    (
        "The survey (Su 2021)",
        "it measures nothing; a BERT with a learned table ends with its training, unless the "
        "table is decomposed hierarchically.",
    ),
)

EXTRAPOLATION = Table(
    name="extrapolation",
    source="Beyond the training length",
    title="perplexity of Table 2's language models at multiples of the length of their training",
    experiment="extrapolation",
    columns=_COLUMNS,
    rows=_rows(TABLE_2),
    takes_any_encoding=True,
    figures=(Figure("lengths"),),
    lengths=FACTORS,
    adapted=ADAPTED,
    evaluate_only=True,
    published_observations=_SAW,
)
MASKED_EXTRAPOLATION = Table(
    name="extrapolation_masked",
    source="Beyond the training length, masked models",
    title="perplexity of Table 8's masked language models at multiples of the length of their "
    "training",
    experiment="masked_extrapolation",
    columns=_COLUMNS,
    rows=_rows(TABLE_8),
    rank=length_metric(4),  # as far as the position tables of Table 8's small models go
    takes_any_encoding=True,
    figures=(Figure("lengths"),),
    lengths=FACTORS,
    adapted=ADAPTED,
    evaluate_only=True,
    published_observations=_SAW_OF_MASKED,
)
TRANSLATION_LENGTHS = Table(
    name="translation_lengths",
    source="BLEU by the length of the source",
    title="BLEU of Table 4's translation models on test sentences by the words of their source",
    experiment="translation_lengths",
    columns=(
        Column("test_bleu", "BLEU (all)", higher_is_better=True),
        *(Column(bleu_metric(name), f"BLEU ({name})", True) for name in BUCKETS),
    ),
    rows=_rows(TABLE_4),
    rank="test_bleu",
    extra_attentions=TABLE_4.extra_attentions,
    figures=(Figure("buckets"),),
    evaluate_only=True,
    published_observations=(
        ("LRPE (Qin et al. 2023)", "BLEU of all sentences together (Table 4), not by length."),
    ),
)
