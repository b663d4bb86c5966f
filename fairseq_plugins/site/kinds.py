"""Kinds of encodings by which the site filters."""

import functools

from fairseq_plugins.catalog.facts import gather
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.results import Result

# Kinds by hooks of an encoding, in order.
_KINDS = (
    ({"transform_query", "transform_key", "transform_value", "log_decay"}, "transforms q, k"),
    ({"attn_bias"}, "bias"),
    ({"relative_logits", "relative_values"}, "relative logits"),
    ({"embed"}, "absolute"),
)
NONE, OTHER = "none", "other"


facts_of = functools.cache(gather)


@functools.cache
def kind_of(name: str) -> str:
    """Return the kind of an encoding; a combination has the kinds of its parts."""
    try:
        hooks = set(facts_of(name).hooks)
    except ValueError:  # an encoding of another version
        return OTHER
    found = [kind for own, kind in _KINDS if hooks & own]
    return " + ".join(reversed(found)) or NONE


def encoding_of(result: Result) -> str:
    """Return the name of a result's encoding: of its row, or of its file in configs/model."""
    adapted = TABLES[result["table"]].adapted.get(result["row"])
    if adapted and adapted.encoding:
        return adapted.encoding
    if result["row"] in ENCODINGS:
        return str(result["row"])
    *_, config = trainings_of(result["config"]).values()
    return str(config["model"].get("position_encoding") or result["row"])
