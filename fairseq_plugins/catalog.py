"""``python -m fairseq_plugins encodings [NAME]``: what there is, read from the registry."""

import argparse
import inspect
import sys
from collections.abc import Sequence

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import ENCODINGS, EncodingEntry, get_entry

HEADINGS = ("name", "attention", "hooks", "source", "what it is")


def attentions(entry: EncodingEntry) -> list[str]:
    """The attentions that can have an encoding."""
    return [name for name, cls in ATTENTIONS.items() if not entry.hooks - cls.supported_hooks]


def table() -> str:
    """A line per encoding, in columns."""
    rows = [HEADINGS] + [
        (
            name,
            ", ".join(attentions(entry)),
            ", ".join(sorted(entry.hooks)) or "-",
            entry.source,
            entry.summary,
        )
        for name, entry in sorted(ENCODINGS.items())
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def details(name: str) -> str:
    """One encoding: its definition, and its options with defaults under this name."""
    entry = get_entry(name)
    lines = [f"{name}: {entry.summary}", f"source: {entry.source}"]
    lines.append(f"attention: {', '.join(attentions(entry))}")
    lines += ["", inspect.getdoc(entry.cls) or "", ""]
    lines.append("options (name=default):" if entry.options else "It has no options.")
    lines += [f"  {o.name}={_word(o.default)}   {o.expected}" for o in entry.options.values()]
    return "\n".join(lines)


def _word(value: object) -> str:
    """As it is written in `position_encoding_options`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table or one encoding; exit status 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins encodings",
        description="The position encodings. Several are joined by '+', as in base+alibi.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this one and its options")
    name = parser.parse_args(argv).name
    try:
        print(table() if name is None else details(name))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
