"""What papers say, as data: a file for each paper has its tables, numbers read off the page.

What a paper claims about its numbers is to be data too, beside the tables it is about.
"""

from fairseq_plugins.papers.bert import (
    BERT_CONTINUED_TABLE,
    BERT_GLUE_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
    BERT_START_TABLE,
)
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_8
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
