"""Kinds of encodings, in the words that the site filters by."""

import functools

from fairseq_plugins.catalog.facts import Facts, gather
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.results import Result

# By the hooks of an encoding, in the order in which they are asked for.
_KINDS = (
    ({"transform_query", "transform_key", "transform_value", "log_decay"}, "transforms q, k"),
    ({"attn_bias"}, "bias"),
    ({"relative_logits", "relative_values"}, "relative logits"),
    ({"embed"}, "absolute"),
)
NONE, OTHER = "none", "other"


@functools.cache
def facts_of(name: str) -> Facts:
    """Return the catalogue's properties of an encoding."""
    return gather(name)


@functools.cache
def kind_of(name: str) -> str:
    """The kind of an encoding by what it acts on; of a composition, of each of its parts."""
    try:
        hooks = set(facts_of(name).hooks)
    except ValueError:  # of another version
        return OTHER
    found = [kind for own, kind in _KINDS if hooks & own]
    return " + ".join(reversed(found)) or NONE


def encoding_of(result: Result) -> str:
    """The name of a result's encoding: its row's, or what its file in configs/model says."""
    adapted = TABLES[result["table"]].adapted.get(result["row"])
    if adapted and adapted.encoding:
        return adapted.encoding
    if result["row"] in ENCODINGS:
        return str(result["row"])
    *_, config = trainings_of(result["config"]).values()
    return str(config["model"].get("position_encoding") or result["row"])
