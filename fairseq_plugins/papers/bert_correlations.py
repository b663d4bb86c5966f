"""On Position Embeddings in BERT (Wang et al. 2021), Table 5: properties against performance.

Pearson correlations over the paper's embeddings, without row `none`, between the properties of
Table 2 and the scores of Tables 3 and 4.
"""

from fairseq_plugins.papers.bert import (
    BERT_GLUE_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
    PAPER,
    VANILLA,
)
from fairseq_plugins.papers.tables import AVERAGE, Column, read_rows

SOURCE = f"{PAPER}, Table 5"
WITHOUT = "none"  # the paper's footnote 11
ROWS = tuple(name for name in BERT_PROPERTIES_TABLE.row_names if name != WITHOUT)

TABLES = (BERT_PROPERTIES_TABLE, BERT_GLUE_TABLE, BERT_SQUAD_TABLE)  # properties, performances
# Properties are correlated with each column of these tables.
PERFORMANCES: tuple[tuple[str, Column], ...] = tuple(
    (table.name, column) for table in TABLES[1:] for column in table.columns
)
PROPERTIES = BERT_PROPERTIES_TABLE.columns

_COLUMNS = {column.metric: column for _, column in PERFORMANCES}
# The paper does not say whether SQuAD's score is F1 or exact match. Exact match of its Table 4
# gives the printed numbers to 0.01; F1 is off by up to 0.10.
_PRINTED = ("CoLA", "SST-2", "MNLI", "QQP", AVERAGE, "v1_exact", "v2_exact")
# By property and metric.
PRINTED = {
    row.name: row.paper["vanilla"]
    for row in read_rows(
        """
        monotonicity                   0.44  0.43   0.56   0.32   0.48  -0.31  -0.27
        monotonicity_20               -0.18  0.44  -0.24  -0.42  -0.21  -0.91  -0.86
        translation_invariance         0.48  0.52   0.04  -0.07   0.42  -0.63  -0.57
        translation_invariance_words  -0.47  0.01  -0.69  -0.68  -0.61  -0.51  -0.58
        symmetry                       0.17  0.24   0.40   0.09   0.31   0.15   0.16
        direction_balance              0.32  0.16   0.63   0.35   0.48   0.32   0.37
        """,
        tuple(_COLUMNS[metric] for metric in _PRINTED),
        {column.metric: column.label for column in PROPERTIES},
        VANILLA,
    )
}
