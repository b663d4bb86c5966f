"""LRPE (Qin et al. 2023): Tables 2, 3, 4, 5 and 8."""

from fairseq_plugins.papers.tables import AVERAGE, Column, Figure, Row, Table, read_rows

PERPLEXITIES = (Column("valid_ppl", "PPL (valid)"), Column("test_ppl", "PPL (test)"))
MASKED = (Column("valid_loss", "loss (valid)"), Column("valid_ppl", "PPL (valid)"))
# Derived from the curves of runs, for claims about convergence.
UPDATES_TO_REFERENCE = Column("updates_to_reference", "updates to Base's lowest loss", digits=0)
LAST_TRAIN_LOSS = Column("last_train_loss", "training loss, last logged")
BLEU = (
    Column("valid_bleu", "BLEU (valid)", higher_is_better=True),
    Column("test_bleu", "BLEU (test)", higher_is_better=True),
)
_GLUE = (
    *(Column(name, name, True) for name in ("MNLI-m", "MNLI-mm", "QNLI", "QQP", "SST-2")),
    Column(AVERAGE, "AVG", higher_is_better=True),
)

_LABELS = {
    "base": "Base",
    "rope": "RoPE",
    "spe": "SPE",
    "per": "PER",
    "t5": "T5",
    "xl": "XL",
    **{f"lrpe_type{number}": f"Type{number}" for number in range(1, 9)},
}
_MATRICES = {"lrpe_type2": "Householder", "lrpe_type6": "Permutation", "lrpe_identity": "Identity"}

TABLE_2 = Table(
    name="table2",
    source="LRPE, Table 2",
    title="perplexity of the autoregressive language model on WikiText-103",
    experiment="lm",
    columns=PERPLEXITIES,
    rows=read_rows(
        """
        Competitors:
        base        33.94 33.74  30.82 29.78
        rope        33.40 33.13  30.13 29.31
        spe         43.50 41.91  32.99 32.26
        per         32.86 32.53  32.21 31.95
        t5          -     -      30.70 29.74
        xl          -     -      32.93 34.36
        Householder:
        lrpe_type1  33.65 33.58  29.66 28.80
        lrpe_type2  32.83 32.80  29.60 28.69
        lrpe_type3  33.04 32.81  29.62 28.81
        lrpe_type4  35.05 34.80  31.66 31.32
        Permutation:
        lrpe_type5  34.24 33.89  29.92 29.10
        lrpe_type6  33.13 33.05  29.83 28.87
        lrpe_type7  34.07 33.87  31.96 31.37
        FFT:
        lrpe_type8  36.78 36.31  29.85 28.96
        """,
        PERPLEXITIES,
        _LABELS,
    ),
    takes_any_encoding=True,
)

TABLE_3 = Table(
    name="table3",
    source="LRPE, Table 3",
    title="accuracy on GLUE's development sets",
    experiment="lrpe_glue",
    columns=_GLUE,
    rows=read_rows(
        """
        base        74.87 75.37 82.59 88.17 87.27 81.65  79.37 79.07 87.79 88.33 90.25 86.44
        rope        67.13 67.69 79.97 85.11 78.21 77.61  75.21 76.06 86.20 87.34 87.73 84.12
        spe         67.07 68.51 74.79 71.43 78.67 72.99  76.01 76.61 85.67 87.66 89.33 84.67
        per         67.43 69.26 76.13 83.93 86.93 78.61  -     -     -     -     -     -
        lrpe_type5  74.66 75.05 83.10 85.98 88.30 83.01  -     -     -     -     -     -
        t5          -     -     -     -     -     -      77.83 78.84 86.93 87.78 89.91 85.61
        lrpe_type1  -     -     -     -     -     -      79.18 79.85 87.57 87.89 89.11 85.94
        """,
        _GLUE,
        _LABELS,
    ),
    average_of=("MNLI-m", "QNLI", "QQP", "SST-2"),
    may_start_published=True,
    notes=(
        "The paper's average is over MNLI matched, QNLI, QQP and SST-2, except for Base under "
        "linear attention: its printed 81.65 counts MNLI mismatched too; without it it is 83.23.",
        "The paper's RoBERTa is trained from scratch with the encoding of each row.",
    ),
)

TEACHER_SIMILARITY = (
    Column("cosine", "cosine", higher_is_better=True, digits=4),
    Column("valid_error", "relative squared error", digits=4),
)
LRPE_ADAPTED_TABLE = Table(
    name="lrpe_adapted",
    source="LRPE, Section 4.2, published start",
    title="similarity to the published model of the models that Table 3 fine-tunes at scale "
    "`published`",
    experiment="lrpe_adapted",
    columns=TEACHER_SIMILARITY,
    rank="cosine",
    rows=tuple(Row(row.name, row.label, "", {}) for row in TABLE_3.rows),
    may_start_published=True,
)

TABLE_4 = Table(
    name="table4",
    source="LRPE, Table 4",
    title="BLEU of WMT'14 English-German translation (linear attention in the encoder only)",
    experiment="mt",
    columns=(Column("valid_loss", "loss (valid)"), *BLEU),
    rows=read_rows(
        """
        Baselines:
        base        29.57±0.06 26.34±1.05  29.92±0.3  27.50±0.18
        rope        29.60±0.04 26.32±0.36  30.09±0.06 27.25±0.39
        spe         29.39±0.02 26.74±0.12  29.76±0.06 27.34±0.12
        per         29.84±0.04 27.47±0.1   29.73±0.08 27.19±0.30
        t5          -          -           29.95±0.09 27.56±0.22
        Householder:
        lrpe_type1  29.60±0.05 26.16±0.51  30.09±0.02 27.18±0.27
        lrpe_type2  29.65±0.04 26.13±0.77  30.07±0.02 27.28±0.37
        lrpe_type3  29.68±0.03 26.02±0.61  30.08±0.03 27.44±0.16
        lrpe_type4  29.78±0.05 27.47±0.45  29.95±0.05 27.41±0.16
        Permutation:
        lrpe_type5  29.61±0.04 26.13±0.5   30.08±0.05 27.18±0.52
        lrpe_type6  29.71±0.04 26.13±1.16  30.09±0.02 27.39±0.49
        lrpe_type7  29.82±0.03 27.45±0.12  29.96±0.03 27.21±0.28
        FFT:
        lrpe_type8  -          -           30.10±0.06 27.46±0.22
        """,
        BLEU,
        _LABELS,
    ),
    seeds=(1, 2, 3, 4, 5),
    extra_attentions={"linear_both": "Linear attention in the decoder too, beyond the paper"},
    names={"linear_both": "linear attention, decoder too"},
    derived=(LAST_TRAIN_LOSS, Column("valid_token_bleu", "BLEU of tokens (valid)", True)),
)

TABLE_5 = Table(
    name="table5",
    source="LRPE, Table 5",
    title="perplexity with different matrices P of a learned rotation, WikiText-103",
    experiment="lm",
    columns=PERPLEXITIES,
    rows=read_rows(
        """
        P:
        lrpe_type2     32.83 32.80  29.60 28.69
        lrpe_type6     33.13 33.05  29.83 28.87
        lrpe_identity  34.09 33.70  30.05 29.24
        """,
        PERPLEXITIES,
        _MATRICES,
    ),
    reference="lrpe_identity",
)

TABLE_8 = Table(
    name="table8",
    source="LRPE, Table 8",
    title="loss and perplexity of the masked language model (RoBERTa) on WikiText-103",
    experiment="mlm",
    columns=MASKED,
    rows=read_rows(
        """
        Competitors:
        base        2.32 4.98  1.92 3.77
        rope        2.21 4.64  1.85 3.60
        spe         2.74 6.68  2.04 4.11
        per         2.54 5.81  -    -
        t5          -    -     1.90 3.72
        Householder:
        lrpe_type1  2.34 5.06  1.83 3.55
        lrpe_type2  2.08 4.22  1.82 3.53
        lrpe_type3  2.09 4.26  1.83 3.55
        lrpe_type4  2.31 4.95  2.02 4.06
        Permutation:
        lrpe_type5  2.29 4.90  1.85 3.61
        lrpe_type6  2.11 4.30  1.82 3.54
        lrpe_type7  2.27 4.81  2.07 4.18
        FFT:
        lrpe_type8  -    -     1.88 3.68
        """,
        MASKED,
        _LABELS,
    ),
    derived=(UPDATES_TO_REFERENCE,),
    takes_any_encoding=True,
    figures=(Figure("ranking"), Figure("curves", "LRPE, Figure 2", name="figure2")),
)
