"""The catalogue as plain text: a table of encodings, or the details of one."""

import inspect
from collections.abc import Iterable
from textwrap import wrap

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.catalog.facts import (
    DIRECTIONS,
    HOOK_WORDS,
    LABELS,
    SIZE,
    Facts,
    describe,
    gather,
)
from fairseq_plugins.common.tables import columns
from fairseq_plugins.encodings import ENCODINGS, expand_name, get_entry

SHORT_DIRECTIONS = {"bidirectional": "bidir."}
LEGEND = {
    "softmax, linear": "whether attention_type=vanilla (softmax) or linear supports it",
    "causal, bidirectional, cross": "whether causal, bidirectional and cross-attention support it; "
    "cross is '-' for an encoding of the token embeddings, which does nothing inside an attention",
    "learned": f"parameters at {SIZE}",
    "lengths": "whether it needs the lengths of the sequences without padding",
    "longer": "whether positions beyond the training length are supported; otherwise an error",
}


def headings() -> tuple[str, ...]:
    """Return the column headings, with full names of directions."""
    attentions = (LABELS.get(name, name) for name in ATTENTIONS)
    return ("name", *attentions, *DIRECTIONS, "learned", "lengths", "longer", "hooks", "source")


def cells(facts: Facts, hooks: str) -> tuple[str, ...]:
    """Return the cells of a row under ``headings()``."""
    return (
        facts.name,
        *(facts.under(attention) for attention in ATTENTIONS),
        *(facts.when(direction) for direction in DIRECTIONS),
        f"{facts.parameters:,}",
        "yes" if facts.position_facts.needs_lengths else "no",
        "yes" if facts.position_facts.extrapolates else "no",
        hooks,
        get_entry(facts.name).source,
    )


def select(attention: str | None, direction: str | None) -> list[Facts]:
    """Select the encodings that an attention supports in a direction; None is any."""
    attentions = [attention] if attention else list(ATTENTIONS)
    directions = [direction] if direction else list(DIRECTIONS)
    cases = [(a, d) for a in attentions for d in directions]
    encodings = (gather(name) for name in sorted(ENCODINGS))
    return [facts for facts in encodings if any(facts.fits[case] == "yes" for case in cases)]


def table(encodings: Iterable[Facts]) -> str:
    """Format encodings as a table with a legend."""
    rows = [tuple(SHORT_DIRECTIONS.get(heading, heading) for heading in headings())]
    rows += [cells(f, " ".join(HOOK_WORDS[h] for h in f.hooks) or "-") for f in encodings]
    hooks = ", ".join(f"{word} {hook}" for hook, word in HOOK_WORDS.items() if word != hook)
    legend = [f"{names}: {meaning}." for names, meaning in {**LEGEND, "hooks": hooks}.items()]
    folded = [line for entry in legend for line in wrap(entry, 100, subsequent_indent="  ")]
    return "\n".join([columns(rows), "", *folded])


def details(name: str) -> str:
    """Describe a name, or several joined by ``+``: support, definition and options.

    Raises:
        ValueError: for an unknown or repeated name.
    """
    parts = expand_name(name)
    lines = _about(name) if name in ENCODINGS else [f"{name}: " + " and ".join(parts)]
    try:
        lines += [f"{label}: {text}" for label, text in describe(gather(name))]
    except ValueError as error:
        if len(parts) == 1:
            raise
        lines.append(f"does not compose: {error}")
    for part in parts:
        if part != name:
            lines += ["", "", *_about(part)]
        prefix = f"{part}." if len(parts) > 1 else ""
        lines += ["", inspect.getdoc(get_entry(part).make) or "", "", *_options(part, prefix)]
    return "\n".join(lines)


def _about(name: str) -> list[str]:
    entry = get_entry(name)
    lines = [f"{name}: {entry.summary}", f"source: {entry.source}", f"formula: {entry.formula}"]
    return lines + [f"also known as: {', '.join(entry.known_as)}"] * bool(entry.known_as)


def _options(name: str, prefix: str) -> list[str]:
    options = get_entry(name).options.values()
    if not options:
        return ["It has no options."]
    lines = [f"  {prefix}{o.name}={word(o.default)}   {o.expected}" for o in options]
    return ["options (name=default):", *lines]


def word(value: object) -> str:
    """Format a value as in `position_encoding_options`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
