"""The experiments of all tables, by name."""

from fairseq_plugins.experiments.adapted import BERT_ADAPTED, LRPE_ADAPTED
from fairseq_plugins.experiments.base import Experiment
from fairseq_plugins.experiments.extrapolation import EXTRAPOLATION, MASKED_EXTRAPOLATION
from fairseq_plugins.experiments.glue import BERT_GLUE, LRPE_GLUE
from fairseq_plugins.experiments.identical_words import IDENTICAL_WORDS
from fairseq_plugins.experiments.lm import FLOOR_SWEEP, LANGUAGE_MODEL
from fairseq_plugins.experiments.mlm import BERT_CONTINUED, BERT_START, MASKED_LANGUAGE_MODEL
from fairseq_plugins.experiments.mt import TRANSLATION, TRANSLATION_LENGTHS
from fairseq_plugins.experiments.squad import BERT_FIGURE7, SQUAD
from fairseq_plugins.papers import TABLES

EXPERIMENTS: dict[str, Experiment] = {
    "lm": LANGUAGE_MODEL,
    "floor_sweep": FLOOR_SWEEP,
    "mlm": MASKED_LANGUAGE_MODEL,
    "mt": TRANSLATION,
    "lrpe_glue": LRPE_GLUE,
    "bert_start": BERT_START,
    "bert_continued": BERT_CONTINUED,
    "bert_adapted": BERT_ADAPTED,
    "lrpe_adapted": LRPE_ADAPTED,
    "bert_glue": BERT_GLUE,
    "squad": SQUAD,
    "bert_medium": BERT_FIGURE7,
    "identical_words": IDENTICAL_WORDS,
    "extrapolation": EXTRAPOLATION,
    "masked_extrapolation": MASKED_EXTRAPOLATION,
    "translation_lengths": TRANSLATION_LENGTHS,
}


def may_start_published(table: str, scale: str) -> bool:
    """Return whether a table's rows may start from a published model, maybe through other runs."""
    origin = experiment_of(table).origin_at(scale)
    return bool(origin and (origin.may_be_published or may_start_published(origin.table, scale)))


def experiment_of(table: str) -> Experiment:
    """Return the experiment of a table, by the table's name."""
    return EXPERIMENTS[TABLES[table].experiment]
