"""Which trained models the figures of "On Position Embeddings in BERT" are of, by their cells."""

from dataclasses import dataclass

from fairseq_plugins.papers.bert import BERT_CONTINUED_TABLE, BERT_START_TABLE, LEARNED, VANILLA


@dataclass(frozen=True)
class Model:
    """What the first seed of a row that is there leaves in a table.

    Attributes:
        label: for a panel.
        parts: a pattern for the folders of several trainings of one run, each a panel.
        study: what a study's name has behind that of the scale; its settings keep the checkpoints
            of a training while it goes on, some of which are a panel each.
        settings: of that study.
    """

    table: str
    row: str
    label: str
    parts: str = ""
    study: str = ""
    settings: tuple[str, ...] = ()

    @property
    def attention(self) -> str:
        return VANILLA[0]  # the figures are of weights between pairs of words


def _continued(*rows: str) -> tuple[Model, ...]:
    return tuple(Model(BERT_CONTINUED_TABLE.name, row, row) for row in rows)


SPANS, CLASSES = "SQuAD", "GLUE"  # what the models of Figure 4 that are fine-tuned begin with
_ABSOLUTE = ("learned", "sinusoidal", "learnable_sinusoidal")
_RELATIVE = ("shaw_only", "sinusoidal_rpe_only", "learnable_sinusoidal_rpe_only")
_LEARNABLE = "learnable_sinusoidal"
# Figures 1 (b, d, f) and 6 (b, c).
_WITH_LEARNED_RELATIVE = ("learned_shaw", "learnable_sinusoidal_shaw")

FIGURE_MODELS: dict[int, tuple[Model, ...]] = {
    1: _continued(*_ABSOLUTE, *_RELATIVE, *_WITH_LEARNED_RELATIVE),
    2: _continued(*_ABSOLUTE, *_RELATIVE),
    4: (
        *_continued(_LEARNABLE),
        Model("bert_table4", _LEARNABLE, SPANS, "*"),
        Model("bert_table3", _LEARNABLE, CLASSES, "*"),
    ),
    6: _continued(*_RELATIVE, *_WITH_LEARNED_RELATIVE),
    8: (
        Model(
            BERT_START_TABLE.name,
            LEARNED,
            "",
            study="steps",
            settings=("checkpoint.keep_interval_updates=-1",),
        ),
    ),
    9: _continued(*_ABSOLUTE),
    10: (
        *_continued("learned"),
        Model("table2", "learned", "language model"),
        Model("table4", "base", "encoder of a translation model"),
    ),
    11: _continued(*(row.name for row in BERT_CONTINUED_TABLE.rows if row.name != "none")),
}
