"""Comparison of denominators of linear attention, which is no paper's table."""

from fairseq_plugins.papers.lrpe import PERPLEXITIES, TABLE_2
from fairseq_plugins.papers.tables import Figure, Row, Table

PLAIN = "plain"  # denominator of un-encoded features, which needs no lower bound
# By column: `min_cosine`, the lower bound of the denominator as a fraction of its maximum.
FLOORS = {"floor_0": 0.0, "floor_5": 0.05, "floor_10": 0.1, "floor_20": 0.2, "floor_40": 0.4}
CLAMPED = "clamped"  # max(sum, 1e-6), as in the LRPE authors' code of 2022
# Norms of the output in place of a denominator, as in their code since January 2023.
OUTPUT_NORMS = {"layer_norm": "layer norm of the output", "rms_norm": "RMS norm of the output"}


FLOOR_SWEEP = Table(
    name="floor_sweep",
    source="The denominators of linear attention",
    title="perplexity of Table 2's language models with linear attention whose denominator is at "
    "least a share of its maximum (floor), is that of un-encoded features (plain), is "
    "max(denominator, 0.000001) as in the LRPE authors' code of 2022 (clamped), or is replaced by "
    "a norm of the output as in their code since January 2023",
    experiment="floor_sweep",
    columns=PERPLEXITIES,
    rows=tuple(Row(row.name, row.label, "", {}) for row in TABLE_2.rows if "linear" in row.paper),
    attentions=(*FLOORS, PLAIN, CLAMPED, *OUTPUT_NORMS),
    names={
        **{word: f"floor {floor:g}" for word, floor in FLOORS.items()},
        PLAIN: "plain denominator",
        CLAMPED: "clamped denominator",
        **OUTPUT_NORMS,
    },
    reference_attentions=(CLAMPED, "layer_norm"),  # that of Table 2, and of the authors' last code
    seeds=(1, 2, 3),
    reference="rope",
    figures=(Figure("settings"),),
)
