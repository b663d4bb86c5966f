"""A table's Markdown: the paper's numbers, ours and the difference, and which orderings hold."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairseq_plugins.attention.linear import MIN_COSINE
from fairseq_plugins.reproduce.orderings import (
    Agreement,
    Cell,
    Cells,
    against_none,
    compare_orders,
    deviation,
    gather,
    mean,
)
from fairseq_plugins.reproduce.recipe import total_batch
from fairseq_plugins.reproduce.results import Result
from fairseq_plugins.reproduce.tables import ATTENTIONS, SCALES, Row, Table

DASH = "-"


def render(table: Table, scale: str, results: Sequence[Result], left_out: Sequence[str]) -> str:
    """The whole Markdown page.

    results: the runs to show. left_out: sentences about results that were not shown.
    """
    cells = gather(results)
    parts = [f"# {table.source}, scale `{scale}`", caption(table, scale, results)]
    parts += [f"Left out: {sentence}" for sentence in left_out]
    parts.append(main_table(table, cells))
    beyond = _beyond(table, cells)
    if beyond:
        parts += ["## Rows beyond the paper", beyond_table(beyond, cells)]
    for context in SCALES[scale].evaluation.contexts[1:]:
        wider = gather(results, f"_context_{context}")
        parts += [f"## With at least {context} tokens of context", main_table(table, wider)]
    parts += orderings(table, cells)
    return "\n\n".join(parts) + "\n"


def cell_text(values: tuple[float, ...] | None) -> str:
    """Mean, +- standard deviation and number of seeds: "81.20 ± 0.31 (3)"."""
    if not values:
        return DASH
    spread = deviation(values)
    if spread is None:
        return f"{mean(values):.2f} (1)"
    return f"{mean(values):.2f} ± {spread:.2f} ({len(values)})"


def markdown_table(header: Sequence[str], left: int, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first `left` columns are words and the rest numbers."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def main_table(table: Table, cells: Cells) -> str:
    """The paper's rows in the paper's order, under each attention."""
    header = ["", "Method"]
    for attention in ATTENTIONS:
        name = attention.capitalize()
        header += [
            f"{name}: paper valid",
            "paper test",
            "ours valid",
            "ours test",
            "difference (test)",
        ]
    lines, group = [], ""
    for row in table.rows:
        line = [row.group if row.group != group else "", f"{row.label} (`{row.name}`)"]
        group = row.group
        for attention in ATTENTIONS:
            line += _columns(row, attention, cells.get((row.name, attention)))
        lines.append(line)
    return markdown_table(header, 2, lines)


def _columns(row: Row, attention: str, cell: Cell | None) -> list[str]:
    paper = row.paper.get(attention)
    published = [f"{paper.valid:.2f}", f"{paper.test:.2f}"] if paper else [DASH, DASH]
    if cell is None:
        return [*published, DASH, DASH, DASH]
    difference = f"{mean(cell.test) - paper.test:+.2f}" if paper else DASH
    return [*published, cell_text(cell.valid), cell_text(cell.test), difference]


def _beyond(table: Table, cells: Cells) -> list[str]:
    return sorted({row for row, _ in cells} - set(table.row_names))


def beyond_table(names: Sequence[str], cells: Cells) -> str:
    """Rows that the paper does not have: ours only."""
    header = ["Method"]
    for attention in ATTENTIONS:
        header += [f"{attention.capitalize()}: valid", "test"]
    lines = []
    for name in names:
        line = [f"`{name}`"]
        for attention in ATTENTIONS:
            cell = cells.get((name, attention))
            line += [cell_text(cell.valid), cell_text(cell.test)] if cell else [DASH, DASH]
        lines.append(line)
    return markdown_table(header, 1, lines)


def _distinct(results: Iterable[Result], value: Callable[[Result], Any]) -> str:
    """The different values of a property over all results: "900", or "900 / 1,200"."""
    found = {value(result) for result in results}
    found.discard(None)
    texts = [f"{v:,}" if isinstance(v, int) else str(v) for v in sorted(found)]
    return " / ".join(texts) or "unknown"


def _range(results: Iterable[Result], metric: str, unit: float) -> str:
    found = [r["metrics"][metric] / unit for r in results if r["metrics"][metric] is not None]
    if not found:
        return "unknown"
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    return low if low == high else f"{low} to {high}"


def caption(table: Table, scale: str, results: Sequence[Result]) -> str:
    """What was trained on what: everything that a reader needs to judge the numbers."""
    what = f"The paper's columns: {table.title}; lower is better."
    if not results:
        return f"{what} No run is done yet."

    def of(section: str, key: str) -> str:
        return _distinct(results, lambda r: r["config"].get(section, {}).get(key))

    def tokens_per_update(result: Result) -> int:
        return total_batch(result["config"]) * int(result["config"]["task"]["tokens_per_sample"])

    model = (
        f"Model: {of('model', 'decoder_layers')} layers of {of('model', 'decoder_embed_dim')} "
        f"features, {of('model', 'decoder_attention_heads')} heads, feed-forward "
        f"{of('model', 'decoder_ffn_embed_dim')}, {_range(results, 'parameters', 1e6)} million "
        f"parameters with a dictionary of {_distinct(results, _dictionary_size)} symbols."
    )
    budget = (
        f"Training: {of('optimization', 'max_update')} updates of "
        f"{_distinct(results, tokens_per_update)} tokens (samples of "
        f"{of('task', 'tokens_per_sample')}), seeds {_distinct(results, lambda r: r['seed'])}; "
        f"{_range(results, 'train_seconds', 60)} minutes per run."
    )
    recipe = (
        f"Recipe: peak learning rate {_distinct(results, _learning_rate)}, gradients clipped at "
        f"{of('optimization', 'clip_norm')} (0.0 is not at all), layer normalisation "
        f"{_distinct(results, _normalization)} each block; evaluated: "
        f"{_distinct(results, _evaluated)} checkpoint."
    )
    machine = (
        f"Machine: {_distinct(results, _hardware)}; torch "
        f"{_distinct(results, lambda r: r['versions']['torch'])}, fairseq "
        f"{_distinct(results, lambda r: r['versions']['fairseq'])}."
    )
    floor = (
        "Linear attention: the paper does not say what it does where an encoded denominator comes "
        f"near zero; here its size is kept at or above {MIN_COSINE} of its bound. That is a small "
        "share of most rows' denominators, but nearly all of `lrpe_type8`'s. Rows whose scores are "
        "never negative (`per`, `spe`, `cosformer`) have no such floor, and `xpos`, which changes "
        "norms, has the denominator of un-encoded features."
    )
    cells = "Cells: mean ± standard deviation over seeds (number of seeds); `-` is not run."
    about = f"Data: {_distinct(results, _data)}."
    told = [about, model, budget, recipe, machine, cells]
    if any(result["attention"] == "linear" for result in results):
        told.append(floor)
    facts = "\n".join(f"- {fact}" for fact in told)
    return f"{what}\n\nOur columns:\n\n{facts}\n\n{_comparability(scale)}"


def _comparability(scale: str) -> str:
    if scale == "paper":
        return (
            "The paper does not state its evaluation context; the main table scores every token "
            "with the tokens before it in its own sample."
        )
    return (
        "The data, the model and the budget are far smaller than the paper's, so perplexities "
        "and the differences from the paper's are expected to be large; what can be compared is "
        "the order of the rows, below. What differs from Table 7 is the same for every row."
    )


def _dictionary_size(result: Result) -> Any:
    return result["data"].get("dictionary_size")


def _learning_rate(result: Result) -> Any:
    return result["config"].get("optimization", {}).get("lr", ["unknown"])[0]


def _normalization(result: Result) -> str:
    before = result["config"].get("model", {}).get("decoder_normalize_before")
    return "before" if before else "after"


def _evaluated(result: Result) -> str:
    last = result["config"].get("dataset", {}).get("disable_validation")
    return "the last" if last else "the best"


def _data(result: Result) -> str:
    data = result["data"]
    name = data.get("request", {}).get("corpus", result["config"]["task"].get("data", "unknown"))
    size = data.get("splits", {}).get("train", {}).get("words")
    merges = data.get("request", {}).get("merges")
    unit = f"BPE pieces of {merges:,} merges" if merges else "words"
    return f"{name} ({size:,} {unit} to train on; perplexities per unit)" if size else str(name)


def _hardware(result: Result) -> str:
    machine = result["hardware"]
    if machine["gpus"]:
        return f"{len(machine['gpus'])} x {machine['gpus'][0]}"
    return f"{machine['cores']} cores of {machine['cpu']}"


def orderings(table: Table, cells: Cells) -> list[str]:
    """The section on the paper's orderings; empty where no two rows can be compared."""
    found = [compare_orders(table, cells, attention) for attention in ATTENTIONS]
    found = [agreement for agreement in found if agreement.pairs]
    if not found:
        return []
    holding, count = sum(a.holding for a in found), sum(len(a.pairs) for a in found)
    summary = (
        f"By test perplexity, {holding} of {count} pairs of rows stand in the paper's order. "
        "Below are the neighbours in the paper's ranking and each row against Base; gaps are the "
        "worse row's perplexity minus the better's, in the paper's order. The seed spread is the "
        "larger standard deviation of the two rows, or, where one has a single seed, the largest "
        "of any row under the same attention."
    )
    parts = ["## Orderings of the paper", summary]
    parts += [_agreement(table, agreement) for agreement in found]
    parts += [s for attention in ATTENTIONS if (s := _without(cells, attention))]
    return parts


def _agreement(table: Table, agreement: Agreement) -> str:
    name = agreement.attention.capitalize()
    line = f"**{name} attention**: {agreement.holding} of {len(agreement.pairs)} pairs hold"
    if agreement.kendall is not None:
        line += f"; Kendall's tau {agreement.kendall:.2f}, Spearman's rho {agreement.spearman:.2f}"
    header = ["In the paper", "gap in the paper", "gap here", "seed spread", "holds here"]
    lines = []
    for pair in agreement.telling_pairs:
        spread = DASH if pair.spread is None else f"{pair.spread:.2f}"
        verdict = "yes" if pair.holds else "no"
        if pair.beyond_spread is False:
            verdict += ", within the spread"
        better, worse = table.row(pair.better).label, table.row(pair.worse).label
        gaps = [f"{pair.paper_gap:.2f}", f"{pair.gap:+.2f}"]
        lines.append([f"{better} < {worse}", *gaps, spread, verdict])
    return f"{line}.\n\n{markdown_table(header, 1, lines)}"


def _without(cells: Cells, attention: str) -> str:
    found = against_none(cells, attention)
    if found is None:
        return ""
    better, worse = found
    text = (
        f"**{attention.capitalize()} attention against no position encoding** (`none`, not in "
        f"the paper): {len(better)} of {len(better) + len(worse)} rows are better"
    )
    return f"{text}; not better: {', '.join(f'`{row}`' for row in worse)}." if worse else f"{text}."
