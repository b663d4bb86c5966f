"""docs/encodings.md: the table and a section per encoding, made from the registry."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from textwrap import dedent

from fairseq_plugins.catalog.facts import Facts, describe
from fairseq_plugins.catalog.text import LEGEND, cells, headings, select, word
from fairseq_plugins.common import tables
from fairseq_plugins.encodings import ENCODINGS, EncodingEntry

COMMAND = "fairseq-pe encodings --write docs/encodings.md"

# Sections of docstrings, and what they are called here.
SECTIONS = {"Args:": "Options:", "Attributes:": "Attributes:", "Raises:": "Errors:"}

INTRODUCTION = """\
# Encodings

Every position encoding that there is, with its definition, its options and where it fits. This
page is made from the code by

    {command}

and a test holds the two together, so edit the docstrings and run that.

On the documentation's site, which `make docs` builds, each has a picture of what it does before any
training; [pictures.md](pictures.md) says what these show.

## How to name one

A name, and options as words `name=value`:

```sh
fairseq-train DATA --user-dir fairseq_plugins --task language_modeling --arch pe_transformer_lm \\
    --position-encoding shaw --position-encoding-options "max_distance=16 values=false" ...
```

```sh
# needs data/wikitext-103
fairseq-hydra-train --config-dir configs --config-name wikitext103_lm \\
    model=shaw 'model.position_encoding_options="max_distance=16 values=false"'
```

In plain PyTorch: `build_encoding("shaw", num_heads=8, head_dim=64, max_distance=16)`. An unknown
name or option is refused with the nearest one, a bad value with what it must be.

## What composes

Names joined by `+` act together, `learned+shaw`; an option then says whose it is,
`shaw.max_distance=16`. Transforms of queries and keys are chained in the order of the names,
everything that is added is summed. A language model keeps fairseq's absolute embedding (`base`)
on beside an encoding, except where its section says "none"; `--no-token-positional-embeddings`
turns it off. What cannot be composed is refused when the model is built:

- what one part cannot have: an attention or direction that refuses a part refuses the whole;
- a transform before the feature map of linear attention and one after it;
- a transform after one that changes the number of features of a head;
- two decays, two feature maps, or two scales of the logits;
- an encoding with itself.

`fairseq-pe encodings NAME+NAME` says whether two go together.

## Table

{legend}

{table}
"""


def markdown_table(found: Iterable[Facts], *, linked: bool = False) -> str:
    """The table; ``linked`` makes each name a link to its section."""
    lines = []
    for facts in found:
        hooks = ", ".join(f"`{hook}`" for hook in facts.hooks)
        name, *rest, source = cells(facts, hooks or "-")
        lines.append([_link(name) if linked else f"`{name}`", *rest, prose(source)])
    return tables.markdown_table(headings(), lines)


def page() -> str:
    """The whole document."""
    found = {facts.name: facts for facts in select(None, None)}
    legend = [f"- **{columns}**: {meaning}." for columns, meaning in LEGEND.items()]
    table = markdown_table(found.values(), linked=True)
    blocks = [INTRODUCTION.format(command=COMMAND, legend="\n".join(legend), table=table)]
    for heading, entries in families().items():
        module = sys.modules[entries[0].make.__module__]
        rest = "" if entries[0].parts else _paragraphs(inspect.getdoc(module) or "")[1:]
        blocks += [f"## {heading}", *(prose(paragraph) for paragraph in rest)]
        defined: dict[Callable, str] = {}
        for entry in entries:
            blocks += _section(entry, found[entry.name], defined.get(entry.make))
            defined.setdefault(entry.make, entry.name)
    return "\n\n".join(block.rstrip() for block in blocks) + "\n"


def families() -> dict[str, list[EncodingEntry]]:
    """The entries of each module under the first sentence of its docstring.

    Names of one class follow each other in the order of the source, which is the reverse of that
    in which its decorators ran. Names that stand for several come last.
    """
    by_maker: dict[Callable, list[EncodingEntry]] = {}
    for entry in ENCODINGS.values():
        by_maker.setdefault(entry.make, []).insert(0, entry)
    result: dict[str, list[EncodingEntry]] = {}
    for entries in sorted(by_maker.values(), key=lambda group: bool(group[0].parts)):
        module = inspect.getdoc(sys.modules[entries[0].make.__module__]) or ""
        heading = prose(_paragraphs(module)[0]).rstrip(".")
        if entries[0].parts:
            entries, heading = entries[::-1], "Names that stand for several"
        result.setdefault(heading, []).extend(entries)
    return result


def _section(entry: EncodingEntry, facts: Facts, defined_under: str | None) -> list[str]:
    """The blocks about a name; a class that has several is defined under the first."""
    lines = [f"**what it is**: {prose(entry.summary)}", f"**formula**: `{entry.formula}`"]
    if entry.parts:
        lines[1] = f"**stands for**: {' and '.join(map(_link, entry.parts))}"
    lines.append(f"**source**: {prose(entry.source)}")
    if entry.known_as:
        lines.append(f"**other words for it**: {prose(', '.join(entry.known_as))}")
    lines += [f"**{label}**: {prose(what)}" for label, what in describe(facts)]
    options = [f"`{key}={word(option.default)}`" for key, option in entry.options.items()]
    if not (defined_under or entry.parts):
        allowed = (f" ({option.expected})" for option in entry.options.values())
        options = [name + what for name, what in zip(options, allowed, strict=True)]
    lines.append(f"**options**: {', '.join(options) or 'none'}")
    if defined_under:
        lines.append(f"**definition and meaning of the options**: see {_link(defined_under)}")
    blocks = [f"### `{entry.name}`", "\n".join(f"- {line}" for line in lines)]
    if not (defined_under or entry.parts):
        blocks += definition(inspect.getdoc(entry.make) or "")
    return blocks


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def definition(docstring: str) -> list[str]:
    """A docstring as Markdown: paragraphs, and lists of its options and errors."""
    blocks = []
    for paragraph in _paragraphs(docstring):
        title, _, rest = paragraph.partition("\n")
        if title in SECTIONS:
            items = [item.partition(":") for item in re.split(r"\n(?! )", dedent(rest))]
            lines = [f"- `{n}`: {prose(text)}" for n, _, text in items if n != "context"]
            if lines:
                blocks += [SECTIONS[title], "\n".join(lines)]
        elif re.search(r"^\s", paragraph, re.MULTILINE):
            blocks.append(f"```text\n{paragraph}\n```")
        else:
            blocks.append(prose(paragraph))
    return blocks


def _paragraphs(text: str) -> list[str]:
    return re.split(r"\n\s*\n", text)


def prose(text: str) -> str:
    """Plain text as Markdown, in one line: what has a meaning there is escaped, but not code.

    A list keeps its lines.
    """
    pieces = re.split(r"(``[^`]+``|`[^`]+`)", text if _is_list(text) else " ".join(text.split()))
    for i, piece in enumerate(pieces):
        if piece.startswith("`"):
            pieces[i] = f"`{piece.strip('`')}`"
        else:
            pieces[i] = re.sub(r"(?<![^\W_])_|[*~](?!\s)|<(?=[\w/!?])", r"\\\g<0>", piece)
    return "".join(pieces)


def _is_list(text: str) -> bool:
    return text.startswith("- ")
