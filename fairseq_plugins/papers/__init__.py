"""All tables by name."""

from fairseq_plugins.papers.bert import (
    BERT_CONTINUED_TABLE,
    BERT_GLUE_TABLE,
    BERT_SQUAD_TABLE,
    BERT_START_TABLE,
    TABLE_3,
)
from fairseq_plugins.papers.bert_properties import BERT_PROPERTIES_TABLE
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4, TABLE_5, TABLE_8
from fairseq_plugins.papers.tables import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TABLE_2,
        TABLE_3,
        TABLE_4,
        TABLE_5,
        TABLE_8,
        BERT_START_TABLE,
        BERT_CONTINUED_TABLE,
        BERT_PROPERTIES_TABLE,
        BERT_GLUE_TABLE,
        BERT_SQUAD_TABLE,
    )
}
SCALE_NAMES = ("toy", "mini", "paper")
