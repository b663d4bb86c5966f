"""Tables of LRPE (Qin et al. 2023), numbers read off the paper: 2, 4, 5 and 8.

Table 3 is in `published_glue`.
"""

from collections.abc import Iterable

from fairseq_plugins.papers.tables import Column, Printed, Row, Table

PERPLEXITIES = (Column("valid_ppl", "PPL (valid)"), Column("test_ppl", "PPL (test)"))
MASKED = (Column("valid_loss", "loss (valid)"), Column("valid_ppl", "PPL (valid)"))
BLEU = (
    Column("valid_bleu", "BLEU (valid)", higher_is_better=True),
    Column("test_bleu", "BLEU (test)", higher_is_better=True),
)

_NAMES = {
    "Base": "base",
    "RoPE": "rope",
    "SPE": "spe",
    "PER": "per",
    "T5": "t5",
    "XL": "xl",
    **{f"Type{number}": f"lrpe_type{number}" for number in range(1, 9)},
    "Householder": "lrpe_type2",
    "Permutation": "lrpe_type6",
    "Identity": "lrpe_identity",
}
_GROUPS = {
    **dict.fromkeys(("Type1", "Type2", "Type3", "Type4"), "Householder"),
    **dict.fromkeys(("Type5", "Type6", "Type7"), "Permutation"),
    "Type8": "FFT",
    **dict.fromkeys(("Householder", "Permutation", "Identity"), "P"),
}


def _number(word: str) -> Printed:
    mean, _, deviation = word.partition("±")
    return Printed(float(mean), float(deviation) if deviation else None)


def _rows(printed: str, columns: Iterable[Column], competitors: str) -> tuple[Row, ...]:
    """Rows from a table as printed: the label, then the columns under linear attention and those
    under vanilla; a dash where the paper has none."""
    metrics = [column.metric for column in columns]
    rows = []
    for line in printed.strip().splitlines():
        label, *words = line.split()
        halves = {"linear": words[: len(metrics)], "vanilla": words[len(metrics) :]}
        paper = {
            attention: dict(zip(metrics, map(_number, half), strict=True))
            for attention, half in halves.items()
            if "-" not in half
        }
        rows.append(Row(_NAMES[label], label, _GROUPS.get(label, competitors), paper))
    return tuple(rows)


TABLE_2 = Table(
    name="table2",
    source="LRPE, Table 2",
    title="perplexity of the autoregressive language model on WikiText-103",
    experiment="lm",
    columns=PERPLEXITIES,
    rows=_rows(
        """
        Base   33.94 33.74  30.82 29.78
        RoPE   33.40 33.13  30.13 29.31
        SPE    43.50 41.91  32.99 32.26
        PER    32.86 32.53  32.21 31.95
        T5     -     -      30.70 29.74
        XL     -     -      32.93 34.36
        Type1  33.65 33.58  29.66 28.80
        Type2  32.83 32.80  29.60 28.69
        Type3  33.04 32.81  29.62 28.81
        Type4  35.05 34.80  31.66 31.32
        Type5  34.24 33.89  29.92 29.10
        Type6  33.13 33.05  29.83 28.87
        Type7  34.07 33.87  31.96 31.37
        Type8  36.78 36.31  29.85 28.96
        """,
        PERPLEXITIES,
        "Competitors",
    ),
    is_open=True,
)

TABLE_4 = Table(
    name="table4",
    source="LRPE, Table 4",
    title="BLEU of WMT'14 English-German translation (linear attention in the encoder only)",
    experiment="mt",
    columns=BLEU,
    rows=_rows(
        """
        Base   29.57±0.06 26.34±1.05  29.92±0.3  27.50±0.18
        RoPE   29.60±0.04 26.32±0.36  30.09±0.06 27.25±0.39
        SPE    29.39±0.02 26.74±0.12  29.76±0.06 27.34±0.12
        PER    29.84±0.04 27.47±0.1   29.73±0.08 27.19±0.30
        T5     -          -           29.95±0.09 27.56±0.22
        Type1  29.60±0.05 26.16±0.51  30.09±0.02 27.18±0.27
        Type2  29.65±0.04 26.13±0.77  30.07±0.02 27.28±0.37
        Type3  29.68±0.03 26.02±0.61  30.08±0.03 27.44±0.16
        Type4  29.78±0.05 27.47±0.45  29.95±0.05 27.41±0.16
        Type5  29.61±0.04 26.13±0.5   30.08±0.05 27.18±0.52
        Type6  29.71±0.04 26.13±1.16  30.09±0.02 27.39±0.49
        Type7  29.82±0.03 27.45±0.12  29.96±0.03 27.21±0.28
        Type8  -          -           30.10±0.06 27.46±0.22
        """,
        BLEU,
        "Baselines",
    ),
    seeds=(1, 2, 3, 4, 5),
    further={"linear_both": "Linear attention in the decoder too, beyond the paper"},
)

TABLE_5 = Table(
    name="table5",
    source="LRPE, Table 5",
    title="perplexity with different matrices P of a learned rotation, WikiText-103",
    experiment="lm",
    columns=PERPLEXITIES,
    rows=_rows(
        """
        Householder 32.83 32.80  29.60 28.69
        Permutation 33.13 33.05  29.83 28.87
        Identity    34.09 33.70  30.05 29.24
        """,
        PERPLEXITIES,
        "P",
    ),
)

TABLE_8 = Table(
    name="table8",
    source="LRPE, Table 8",
    title="masked language model (RoBERTa) pre-trained on WikiText-103",
    experiment="mlm",
    columns=MASKED,
    rows=_rows(
        """
        Base   2.32 4.98  1.92 3.77
        RoPE   2.21 4.64  1.85 3.60
        SPE    2.74 6.68  2.04 4.11
        PER    2.54 5.81  -    -
        T5     -    -     1.90 3.72
        Type1  2.34 5.06  1.83 3.55
        Type2  2.08 4.22  1.82 3.53
        Type3  2.09 4.26  1.83 3.55
        Type4  2.31 4.95  2.02 4.06
        Type5  2.29 4.90  1.85 3.61
        Type6  2.11 4.30  1.82 3.54
        Type7  2.27 4.81  2.07 4.18
        Type8  -    -     1.88 3.68
        """,
        MASKED,
        "Competitors",
    ),
    is_open=True,
    curves="figure2",
)
