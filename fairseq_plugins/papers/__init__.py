"""Published tables, figures and claims of the papers, as data.

Each paper has a file with the numbers of its tables, and one with its claims, `<paper>_claims.py`.
"""

from fairseq_plugins.papers.bert import (
    BERT_ADAPTED_TABLE,
    BERT_CONTINUED_TABLE,
    BERT_GLUE_TABLE,
    BERT_MEDIUM_TABLE,
    BERT_PROPERTIES_TABLE,
    BERT_SQUAD_TABLE,
    BERT_START_TABLE,
)
from fairseq_plugins.papers.bert_claims import BERT_CLAIMS, BERT_UNJUDGED
from fairseq_plugins.papers.dual_claims import DUAL_CLAIMS
from fairseq_plugins.papers.extrapolation import (
    EXTRAPOLATION,
    MASKED_EXTRAPOLATION,
    TRANSLATION_LENGTHS,
)
from fairseq_plugins.papers.floor_sweep import FLOOR_SWEEP
from fairseq_plugins.papers.lrpe import (
    LRPE_ADAPTED_TABLE,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_8,
)
from fairseq_plugins.papers.lrpe_claims import LRPE_CLAIMS, LRPE_UNJUDGED
from fairseq_plugins.papers.survey_claims import SURVEY_CLAIMS, SURVEY_UNJUDGED
from fairseq_plugins.papers.tables import PUBLISHED, Table

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
        BERT_ADAPTED_TABLE,
        LRPE_ADAPTED_TABLE,
        BERT_PROPERTIES_TABLE,
        BERT_GLUE_TABLE,
        BERT_SQUAD_TABLE,
        BERT_MEDIUM_TABLE,
        EXTRAPOLATION,
        MASKED_EXTRAPOLATION,
        TRANSLATION_LENGTHS,
        FLOOR_SWEEP,
    )
}
# In order: models of one table are used by the next.
PAPERS: dict[str, tuple[str, ...]] = {
    "lrpe": ("table2", "table5", "table8", "table3", "table4"),
    "bert": ("bert_start", "bert_continued", "bert_table2", "bert_table3", "bert_table4"),
}
CLAIMS = (*LRPE_CLAIMS, *BERT_CLAIMS, *DUAL_CLAIMS, *SURVEY_CLAIMS)
UNJUDGED = (*LRPE_UNJUDGED, *BERT_UNJUDGED, *SURVEY_UNJUDGED)
SCALE_NAMES = ("toy", "mini", PUBLISHED, "small", "paper")
