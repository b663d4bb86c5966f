"""How much the floor under linear attention's denominators matters: no paper's table."""

from fairseq_plugins.papers.lrpe import PERPLEXITIES, TABLE_2
from fairseq_plugins.papers.tables import Figure, Row, Table

PLAIN = "plain"  # the denominator of un-encoded features, which needs no floor
# By the word of a column: `min_cosine`, a share of the largest value that a denominator may have.
FLOORS = {"floor_0": 0.0, "floor_5": 0.05, "floor_10": 0.1, "floor_20": 0.2, "floor_40": 0.4}


FLOOR_SWEEP = Table(
    name="floor_sweep",
    source="The floor under linear attention's denominators",
    title="perplexity of Table 2's linear attention with other floors, in shares of the largest "
    "value that a denominator can have, and with the denominator of un-encoded features (plain)",
    experiment="floor_sweep",
    columns=PERPLEXITIES,
    rows=tuple(
        Row(row.name, row.label, "", {})
        for row in map(TABLE_2.row, ("rope", "lrpe_type2", "lrpe_type8"))
    ),
    attentions=(*FLOORS, PLAIN),
    names={
        **{word: f"floor {floor:g}" for word, floor in FLOORS.items()},
        PLAIN: "plain denominator",
    },
    against="floor_20",  # that of all other tables
    seeds=(1, 2),
    reference="rope",
    figures=(Figure("settings"),),
)
