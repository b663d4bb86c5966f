"""docs/encodings.md: the table and a section per encoding, made from the registry."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from textwrap import dedent

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.catalog.facts import DIRECTIONS, SIZE, Facts
from fairseq_plugins.catalog.text import cells, headings, select, word
from fairseq_plugins.common import tables
from fairseq_plugins.encodings import ENCODINGS, EncodingEntry, get_entry

COMMAND = "fairseq-pe encodings --write docs/encodings.md"

# Sections of docstrings and their headings on the page.
SECTIONS = {"Args:": "Options:", "Attributes:": "Attributes:", "Raises:": "Errors:"}

# A reader's needs and the encodings that meet them.
WANTED = {
    "what most models use today": "[`rope`](#rope), softmax or linear attention",
    "texts longer than in training": "[`alibi`](#alibi), [`kerple_log`](#kerple_log), "
    "[`fire`](#fire); of a model with RoPE [`yarn`](#yarn) ([measured](extrapolation.md))",
    "linear attention": "[`rope`](#rope), [`per`](#per), [`lrpe_type2`](#lrpe_type2); column "
    "*linear* below",
    "absolute embeddings, as in BERT and GPT-2": "[`learned`](#learned), "
    "[`sinusoidal`](#sinusoidal)",
    "relative biases or vectors": "[`t5`](#t5), [`shaw`](#shaw), [`xl`](#xl), "
    "[`deberta`](#deberta)",
    "no positions": "[`none`](#none)",
}

INTRODUCTION = """\
# Encodings

{wanted}

```python
from fairseq_plugins.encodings import build_encoding

encoding = build_encoding("rope", num_heads=8, head_dim=64)
```

In fairseq: `--position-encoding rope`; options and combinations are [below](#name-an-encoding).
`fairseq-pe encodings NAME` prints one in full, with deviations from the paper. The site of
results has a page for each with charts and numbers, `site/report/encoding-NAME.html`
(`make report`).

## All {count} names

{table}

- **softmax, linear**: whether the attention supports it. *Causal only* excludes bidirectional and
  cross-attention; *not causal* excludes causal language models. Encodings of the token embeddings
  have no effect of their own in cross-attention.
- **longer**: whether positions beyond the training length are supported; otherwise an error.
- **base stays**: whether a language model keeps the absolute embedding `base` beside it
  (`--no-token-positional-embeddings` turns that off).
- **kernel**: what softmax attention runs. *fused* is `scaled_dot_product_attention` alone, whose
  memory grows with the length (flash attention where the GPU has it, memory-efficient attention on
  a V100, its own kernel on a CPU). *pairs* adds a value for each head, query and key,
  *logits* one for each row of the batch too: on long sequences for 256 queries at a time. From
  compute capability 8.0 on, `FAIRSEQ_PLUGINS_FLEX=1` keeps none of *pairs*. *weights* keeps
  T x S weights. [Performance](performance.md) has a table by device.
- **parameters**: learned ones at {size}.

Linear attention runs one kernel for every encoding that it supports, whose time and memory grow
with the length: Triton from compute capability 8.0 on, C++ on a CPU in float32, else PyTorch.
Linear attention never computes the T x S logits, so it supports no encoding that adds to them.

## Name an encoding

In plain PyTorch, options are arguments: `build_encoding("shaw", num_heads=8, head_dim=64,
max_distance=16)`. In fairseq they are words `name=value`:

```sh
fairseq-train DATA --user-dir fairseq_plugins --task language_modeling --arch pe_transformer_lm \\
    --position-encoding shaw --position-encoding-options "max_distance=16 values=false" ...
```

```sh
# needs data/wikitext-103
fairseq-hydra-train --config-dir configs --config-name wikitext103_lm \\
    model=shaw 'model.position_encoding_options="max_distance=16 values=false"'
```

Unknown names and options are errors that name the nearest.

## Combine encodings

Join names by `+`: `learned+shaw`. Options then name their encoding: `shaw.max_distance=16`.
Transforms of queries and keys are chained in the order of the names; everything else is summed.
These are errors when the model is built:

- a part that the attention or the direction does not support;
- a transform before the feature map of linear attention together with one after it;
- a transform after one that changes the number of features of a head;
- two decays, two feature maps, or two scales of the logits;
- the same encoding twice.

*This page is made by `{command}`. On the site of `make docs` each section has a
[picture](pictures.md).*
"""
PAGE_HEADINGS = (
    *("name", "softmax", "linear", "longer", "base stays", "kernel", "parameters", "source"),
)


def markdown_table(encodings: Iterable[Facts]) -> str:
    """Return the table of the command line in Markdown."""
    lines = []
    for facts in encodings:
        hooks = ", ".join(f"`{hook}`" for hook in facts.hooks)
        name, *rest, source = cells(facts, hooks or "-")
        lines.append([f"`{name}`", *rest, prose(source)])
    return tables.markdown_table(headings(), lines)


def page() -> str:
    """Return the whole page."""
    encodings = {facts.name: facts for facts in select(None, None)}
    introduction = INTRODUCTION.format(
        command=COMMAND,
        count=len(encodings),
        size=SIZE,
        table=tables.markdown_table(PAGE_HEADINGS, map(_row, encodings.values())),
        wanted=tables.markdown_table(["looking for", "names"], WANTED.items()),
    )
    blocks = [introduction]
    for heading, entries in families().items():
        blocks.append(f"## {heading}")
        defined: dict[Callable, EncodingEntry] = {}
        for entry in entries:
            blocks += _section(entry, encodings[entry.name], defined.get(entry.make))
            if not entry.parts:
                defined.setdefault(entry.make, entry)
    return "\n\n".join(block.rstrip() for block in blocks) + "\n"


def _row(facts: Facts) -> list[str]:
    """Return the cells of an encoding under ``PAGE_HEADINGS``."""
    return [
        _link(facts.name),
        *(_support(facts, attention) for attention in ATTENTIONS),
        "yes" if facts.position_facts.extrapolates else "no",
        "no" if facts.replaces_absolute else "yes",
        facts.softmax_kernel,
        f"{facts.parameters:,}",
        prose(get_entry(facts.name).source),
    ]


def _support(facts: Facts, attention: str) -> str:
    """Return the directions in which an attention supports an encoding, as a short text."""
    usable = {d for d in DIRECTIONS if facts.fits[attention, d] != "no"}
    names = {
        frozenset(DIRECTIONS): "yes",
        frozenset(): "no",
        frozenset({"causal"}): "causal only",
        frozenset(DIRECTIONS) - {"causal"}: "not causal",
    }
    is_in_input = facts.fits[attention, "cross"] == "-"
    if is_in_input and usable == {"cross"}:
        return "no"
    return names.get(frozenset(usable), ", ".join(d for d in DIRECTIONS if d in usable))


def families() -> dict[str, list[EncodingEntry]]:
    """Group the entries by module, under the first sentence of its docstring.

    Names of one class follow each other in the order of the source, which is the reverse of that
    in which its decorators ran. Names of combinations come last.
    """
    by_maker: dict[Callable, list[EncodingEntry]] = {}
    for entry in ENCODINGS.values():
        by_maker.setdefault(entry.make, []).insert(0, entry)
    result: dict[str, list[EncodingEntry]] = {}
    for entries in sorted(by_maker.values(), key=lambda group: bool(group[0].parts)):
        module = inspect.getdoc(sys.modules[entries[0].make.__module__]) or ""
        heading = prose(_paragraphs(module)[0]).rstrip(".")
        if entries[0].parts:
            entries, heading = entries[::-1], "Names of combinations"
        result.setdefault(heading, []).extend(entries)
    return result


def _section(entry: EncodingEntry, facts: Facts, first: EncodingEntry | None) -> list[str]:
    """Return the blocks about a name; first: the earlier name of the same class, or None."""
    blocks = [f"### `{entry.name}`", f"{_sentence(entry.summary)[:-1]}: `{entry.formula}`."]
    if entry.parts:
        links = " and ".join(map(_link, entry.parts))
        blocks[1] = f"**Combines** {links}, with their options."
    doc = "" if first or entry.parts else inspect.getdoc(entry.make) or ""
    # The first paragraph repeats summary and formula: shown only if there is no other.
    text = [paragraph for paragraph in _paragraphs(doc) if _is_prose(paragraph)]
    blocks += map(prose, text[1:2] or text)
    blocks += [_sentence(note) for note in _notes(facts)]
    if first:
        changed = {k: o for k, o in entry.options.items() if o.default != first.options[k].default}
        values = ", ".join(f"`{key}={word(option.default)}`" for key, option in changed.items())
        blocks.append(f"Options of {_link(first.name)}{f', with {values}' if changed else ''}.")
    elif not entry.parts:
        texts, lines = _option_texts(entry.make), []
        for key, option in entry.options.items():
            meaning = f": {prose(_first_sentence(texts[key]))}" if key in texts else ""
            lines.append(f"- `{key}={word(option.default)}` ({option.expected}){meaning}")
        blocks.append("\n".join(lines))
    return [block for block in blocks if block]


def _option_texts(make: Callable) -> dict[str, str]:
    """Return the text of each option; a class leaves out those that its bases document."""
    texts: dict[str, str] = {}
    for maker in reversed(make.__mro__) if isinstance(make, type) else [make]:
        paragraphs = _paragraphs(inspect.getdoc(maker) or "")
        sections = dict(paragraph.partition("\n")[::2] for paragraph in paragraphs)
        texts |= _items(sections.get("Args:", ""))
    return texts


def _notes(facts: Facts) -> Iterable[str]:
    """Yield rare properties: reasons of errors, needed lengths, random draws, feature maps."""
    for reason, cases in facts.refusals.items():
        if any(attention != "linear" for attention, _ in cases):
            yield prose(reason)
    if facts.position_facts.needs_lengths:
        yield "needs the lengths of the sequences"
    if facts.is_stochastic:
        yield "random values are drawn anew in every pass, once for a whole decoding"
    if facts.feature_map:
        yield f"the feature map of linear attention is {facts.feature_map}"


def _sentence(text: str) -> str:
    """Return a phrase as a sentence of Markdown."""
    text = prose(text).rstrip(".")
    is_name = text.partition(" ")[0].strip(",") in ENCODINGS or text.startswith("fairseq")
    return f"{text}." if is_name else f"{text[0].upper()}{text[1:]}."


def _items(section: str) -> list[tuple[str, str]]:
    """Split the indented part of a docstring's section into names and texts."""
    items = [item.partition(":") for item in re.split(r"\n(?! )", dedent(section))]
    return [(name, text) for name, _, text in items]


def _first_sentence(text: str) -> str:
    sentences = re.split(r"(?<!Eq\.)(?<=[a-z)`\d]\.)\s+(?=[A-Z`\d])", text.strip())
    is_short = len(sentences[0].split()) < 3
    return " ".join(sentences[: 2 if is_short else 1])


def _is_prose(paragraph: str) -> bool:
    """Return whether a paragraph is neither a docstring's section nor a block of code."""
    is_code = re.search(r"^\s", paragraph, re.MULTILINE)
    return paragraph.partition("\n")[0] not in SECTIONS and not is_code


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def definition(docstring: str) -> list[str]:
    """Convert a docstring to Markdown: paragraphs, and lists of its options and errors."""
    blocks = []
    for paragraph in _paragraphs(docstring):
        title, _, rest = paragraph.partition("\n")
        if title in SECTIONS:
            lines = [f"- `{n}`: {prose(text)}" for n, text in _items(rest) if n != "context"]
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
    """Convert plain text to one line of Markdown; special characters outside code are escaped.

    A list keeps its lines.
    """
    text = text if text.startswith("- ") else " ".join(text.split())
    pieces = re.split(r"(``[^`]+``|`[^`]+`)", text)
    for i, piece in enumerate(pieces):
        if piece.startswith("`"):
            pieces[i] = f"`{piece.strip('`')}`"
        else:
            pieces[i] = re.sub(r"(?<![^\W_])_|[*~](?!\s)|<(?=[\w/!?])", r"\\\g<0>", piece)
    return "".join(pieces)
