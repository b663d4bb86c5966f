"""Table 2 of "On Position Embeddings in BERT" (Wang et al. 2021), numbers read off the paper."""

from fairseq_plugins.papers.bert import BERT_CONTINUED_TABLE, PRETRAINED
from fairseq_plugins.papers.tables import Column, Printed, Row, Table

_DIGITS = 4
_COLUMNS = tuple(
    Column(metric, label, digits=_DIGITS)
    for metric, label in (
        ("monotonicity", "monotonicity, all offsets"),
        ("monotonicity_20", "monotonicity, first 20"),
        ("translation_invariance", "translation invariance, w/ [CLS]"),
        ("translation_invariance_words", "translation invariance, w/o [CLS]"),
        ("symmetry", "symmetry"),
        ("direction_balance", "direction balance"),
    )
)
# As printed, in the order of the columns.
_PRINTED = """
none                                           0.5430 0.1393 0.9497 0.9939 0.0005 1.0136
learned                                        0.2461 0.0208 0.5030 0.0143 0.0012 1.1940
sinusoidal                                     0.1937 0.0190 0.2552 0.2143 0.0010 1.0266
learnable_sinusoidal                           0.1936 0.0237 0.0653 0.0378 0.0004 1.0281
shaw_only                                      0.1576 0.0048 0.1178 0.0007 0.0007 1.1930
sinusoidal_rpe_only                            0.1273 0.0054 0.0924 0.0020 0.0007 1.1565
learnable_sinusoidal_rpe_only                  0.3157 0.0057 0.1397 0.0038 0.0014 1.3223
learned_shaw                                   0.1993 0.0071 0.2601 0.0059 0.0009 1.1971
learned_sinusoidal_rpe                         0.1579 0.0143 0.1376 0.0072 0.0007 1.1302
learned_learnable_sinusoidal_rpe               0.2364 0.0158 0.2334 0.0088 0.0014 1.3804
learnable_sinusoidal_shaw                      0.1248 0.0065 0.0487 0.0238 0.0007 1.1196
learnable_sinusoidal_sinusoidal_rpe            0.0746 0.0040 0.0243 0.0168 0.0007 1.0773
learnable_sinusoidal_learnable_sinusoidal_rpe  0.1796 0.0052 0.0399 0.0252 0.0027 1.6722
"""


def _row(line: str) -> Row:
    name, *words = line.split()
    numbers = {
        column.metric: Printed(float(word), digits=_DIGITS)
        for column, word in zip(_COLUMNS, words, strict=True)
    }
    return Row(name, BERT_CONTINUED_TABLE.row(name).label, "", {"vanilla": numbers})


BERT_PROPERTIES_TABLE = Table(
    name="bert_table2",
    source="On Position Embeddings in BERT, Table 2",
    title="how far attention to identical words is monotone, translation invariant, symmetric and "
    "balanced between directions",
    experiment="identical_words",
    columns=_COLUMNS,
    rank="translation_invariance",
    rows=tuple(_row(line) for line in _PRINTED.strip().splitlines()),
    attentions=("vanilla",),
    draws_patterns=True,
    notes=(
        "Direction balance is balanced at 1, and above 1 where more weight is on what precedes; it "
        "is over offsets up to 20, as the paper's.",
        "Without positions (`none`) all words of a sentence have the same weight up to rounding. "
        "Here equal weights are in order, as in the paper's formula, and no variance has no ratio "
        "(`-`); the paper's 0.5430, 0.1393 and 0.9939 presumably come from the last digits.",
        PRETRAINED,
    ),
)
