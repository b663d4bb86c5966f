"""The trained models in the figures of "On Position Embeddings in BERT"."""

from dataclasses import dataclass

from fairseq_plugins.papers.bert import BERT_CONTINUED_TABLE, BERT_START_TABLE, LEARNED, VANILLA


@dataclass(frozen=True)
class Model:
    """The trained model of a row in a figure, with the lowest seed that has a checkpoint."""

    table: str
    row: str
    label: str  # of the panel
    parts: str = ""  # glob pattern of the run's training folders, each of which gets a panel
    study: str = ""  # ends the name of a study that keeps checkpoints in training; some get a panel
    settings: tuple[str, ...] = ()  # of that study

    @property
    def attention(self) -> str:
        return VANILLA[0]  # the figures show weights of pairs of words


def _continued(*rows: str) -> tuple[Model, ...]:
    return tuple(Model(BERT_CONTINUED_TABLE.name, row, row) for row in rows)


SPANS, CLASSES = "SQuAD", "GLUE"  # prefixes of the labels of fine-tuned models in Figure 4
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
