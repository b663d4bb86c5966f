"""Captions of tables: what is measured, how to read the cells, and how they were made."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fairseq_plugins.common.provenance import different_folders
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.experiments.base import Experiment
from fairseq_plugins.experiments.training import PretrainedModel
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import MARK, Table
from fairseq_plugins.records.data import DataDescription, PreparationRequest, SplitSizes
from fairseq_plugins.records.recipe import total_batch, trainings_of
from fairseq_plugins.records.results import Result, newest_by_attention, other_code
from fairseq_plugins.report.denominators import denominators

Config = Mapping[str, Any]
UNKNOWN = "unknown"
MOST_COLUMNS = 3  # columns per attention up to which both attentions share a table


@dataclass(frozen=True)
class Caption:
    """Caption, notes and provenance of a page of results."""

    headline: str  # what is measured, on which data and seeds; one line
    legend: Sequence[str]  # how to read a cell, a sentence each
    notes: Sequence[str]  # what readers must know: deviations from the paper, missing rows
    provenance: Sequence[str]  # data, model, training, machine and commits


def caption(
    table: Table,
    scale: str,
    results: Sequence[Result],
    *,
    is_study: bool = False,
    missing_rows: Sequence[str] = (),
) -> Caption:
    """Describe the results of a table that a page shows.

    missing_rows: sentences on the paper's rows without a result.
    """
    headline = _headline(table, results, is_study=is_study)
    if not results:
        return Caption(headline, (), (), ())
    experiment = EXPERIMENTS[table.experiment]
    comparable = "" if is_study else experiment.comparability(scale)
    notes = [
        *filter(None, [comparable]),
        *missing_rows,
        *_common_origin(experiment, results),
        *_other_data(table, results),
        *other_code(results, is_study=is_study),
        *experiment.caption_notes(results),
        *table.notes,
        *(_starts(results) or table.trained_start),
        *_similarity(results),
        *denominators(experiment, results),
    ]
    provenance = [
        f"Data: {_distinct(results, lambda r: ', '.join(_corpora(r)))}.",
        *_trainings(results),
        *(_runs(results), _machine(results), _commits(results)),
    ]
    signatures = _distinct(results, lambda r: r.get("signature"))
    if signatures != UNKNOWN:
        provenance.append(f"SacreBLEU: `{signatures}`.")
    return Caption(headline, _legend(table, results), notes, provenance)


def _headline(table: Table, results: Sequence[Result], *, is_study: bool) -> str:
    column = table.ranked_by
    better = f"{'higher' if column.higher_is_better else 'lower'} is better"
    what = f"{table.title[0].upper()}{table.title[1:]}; {better}."
    if is_study:
        unit = ", per token of its data" if column.metric.endswith("ppl") else ""
        what = (
            f"A study: the rows of {table.source}, trained and measured as there, ranked by "
            f"{column.label}{unit}; {better}."
        )
    elif not table.is_printed:
        what += " No paper prints these numbers."
    if not results:
        return f"{what} No run is done yet."
    seeds = sorted({result["seed"] for result in results})
    first, last = seeds[0], seeds[-1]
    runs = f"seeds {first} to {last}" if last > first else f"seed {first}"
    counts = Counter((result["row"], result["attention"]) for result in results).values()
    if min(counts) < max(counts):
        runs = f"{min(counts)} to {max(counts)} seeds of each row"
    data = dict.fromkeys(name for result in results for name in _corpora(result).values())
    return f"{what} Here: {', '.join(data)}; {runs}."


def _legend(table: Table, results: Sequence[Result]) -> list[str]:
    """Explain a table's cells, in at most five sentences."""
    shown = EXPERIMENTS[table.experiment].shown
    printed = "*Paper*: as printed; *ours*: " if table.is_printed else ""
    has_gap = table.is_printed and len(table.columns) <= MOST_COLUMNS
    other = "" if results[0]["scale"] == "paper" else ", which has other data"
    if other and table.ranked_by.metric.endswith("ppl"):
        other += " and other tokens"
    why = "not run, not measured, or impossible under that attention"
    legend = [
        f"{printed}mean ± standard deviation over seeds (number of seeds)"
        f"{f', {shown}' if shown else ''}"
        f"{f'; *difference*: ours minus the paper{other}' if has_gap else ''}",
        f"`-`: {'no number in the paper, or none here: ' * table.is_printed}{why}",
    ]
    if len({(r["row"], r["attention"]) for r in results}) < len(results):
        whose = f"our {MARK}" if table.mark else MARK
        legend.append(
            f"{whose}: differs from `{table.reference}`, p < 0.05 after Holm's correction"
        )
    if table.mark:
        legend.append(f"the paper's {MARK}: {table.mark}")
    return [f"{line[0].upper()}{line[1:]}." for line in legend]


def _trainings(results: Sequence[Result]) -> list[str]:
    """Describe models and trainings, each text once with the names of its trainings."""
    texts: dict[str, dict[str, list[str]]] = {"Model": {}, "Training": {}}
    for name in dict.fromkeys(n for r in results for n in trainings_of(r["config"])):
        configs = [c for r in results if (c := trainings_of(r["config"]).get(name))]
        texts["Model"].setdefault(f"{' and '.join(_stacks(configs))}.", []).append(name)
        texts["Training"].setdefault(_training(configs), []).append(name)
    return [
        f"{what}{f' ({names})' if (names := ', '.join(filter(None, found))) else ''}: {text}"
        for what, names_by_text in texts.items()
        for text, found in names_by_text.items()
    ]


def _training(configs: Sequence[Config]) -> str:

    def of(section: str, key: str) -> str:
        return _distinct(configs, lambda c: c.get(section, {}).get(key))

    updates, epochs = of("optimization", "max_update"), of("optimization", "max_epoch")
    length = f"{updates} updates" if updates not in ("0", UNKNOWN) else f"{epochs} epochs"
    rates = [", ".join(map(str, c.get("optimization", {}).get("lr", [UNKNOWN]))) for c in configs]
    is_last = [bool(c.get("dataset", {}).get("disable_validation")) for c in configs]
    return (
        f"{length} of {_distinct(configs, _batch)}; peak learning rate {_distinct(rates, str)}, "
        f"gradients clipped at {of('optimization', 'clip_norm')} (0.0: no clipping), layer "
        f"normalisation {_distinct(configs, _normalization)} each block; evaluated: "
        f"{_distinct(is_last, lambda last: 'the last' if last else 'the best')} checkpoint."
    )


def _stacks(configs: Sequence[Config]) -> list[str]:
    def of(key: str) -> str:
        return _distinct(configs, lambda c: c["model"].get(key))

    return [
        f"{of(f'{side}_layers')} {side} layers of {of(f'{side}_embed_dim')} features, "
        f"{of(f'{side}_attention_heads')} heads, feed-forward {of(f'{side}_ffn_embed_dim')}"
        for side in ("encoder", "decoder")
        if any(f"{side}_layers" in config["model"] for config in configs)
    ]


def _batch(config: Config) -> str:
    if not config["dataset"].get("batch_size"):
        return f"at most {total_batch(config):,} tokens"
    longest = config["task"].get("tokens_per_sample")
    count = total_batch(config)
    if longest and config["task"].get("_name", "language_modeling") == "language_modeling":
        return f"{count * int(longest):,} tokens (samples of {longest})"
    return f"{count:,} sequences" + (f" of at most {longest} tokens" if longest else "")


def _runs(results: Sequence[Result]) -> str:
    is_trained = any(result["metrics"]["train_seconds"] for result in results)
    took = f"; {_range(results, 'train_seconds', 60)} minutes per run" if is_trained else ""
    seeds = {result["seed"] for result in results}
    return (
        f"Runs: seed{'s'[: len(seeds) != 1]} {_distinct(seeds, int)}; "
        f"{_range(results, 'parameters', 1e6)} million parameters with a dictionary of "
        f"{_distinct(results, _dictionary_size)} symbols{took}."
    )


def _common_origin(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """Note that seeds vary fine-tuning alone, if all start from a model of one seed."""
    origin = experiment.origin_at(results[0]["scale"]) if results else None
    if origin is None or origin.same_seed:
        return []
    if origin.may_be_published and any(PretrainedModel.of(result["config"]) for result in results):
        return []
    model = f"the model `{origin.row}`" if origin.row else "the row's model"
    what = "continued training" if origin.row else "fine-tuning"
    return [
        f"All seeds start from {model} of *{TABLES[origin.table].source}* that was trained with "
        f"seed 1. Deviations and intervals therefore show how much {what} varies, and leave out "
        "how much pre-training does."
    ]


def _other_data(table: Table, results: Sequence[Result]) -> list[str]:
    """Name the attentions whose rows have other data than those under the first one."""
    newest = newest_by_attention(results)
    names = [a for a in (*table.attentions, *table.extra_attentions) if a in newest]
    return [
        f"The data of runs under {table.name_of(name)} were prepared differently from those under "
        f"{table.name_of(names[0])}: compare rows under the same attention alone."
        for name in names[1:]
        if different_folders(newest[names[0]]["data"], newest[name]["data"])
    ]


def _similarity(results: Sequence[Result]) -> list[str]:
    """List how similar each row is to the published model before fine-tuning."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in results:
        cosine = result["metrics"].get("start_cosine")
        if cosine is not None:
            found.setdefault((result["row"], result["attention"]), []).append(cosine)
    if not found:
        return []
    several = len({attention for _, attention in found}) > 1
    words = ", ".join(
        f"`{row}`{f' ({attention})' if several else ''} {fmean(cosines):.3f}"
        for (row, attention), cosines in sorted(found.items(), key=lambda item: -fmean(item[1]))
    )
    return [
        "Similarity to the published model before fine-tuning: the mean cosine between the last "
        f"layers' outputs on held-out text (1: equal; mean over seeds): {words}. A row with a "
        "low cosine has not recovered from the change of its encoding, which its other numbers "
        "reflect too."
    ]


def _starts(results: Sequence[Result]) -> list[str]:
    """Name the published model from which rows start, if any."""
    found = {start.text for r in results if (start := PretrainedModel.of(r["config"]))}
    return [
        f"All rows start from a published model, {text}, in place of one that is trained here. "
        "Its own training may have had text of GLUE or SQuAD: MiniLM's had pairs of MNLI, QQP and "
        "SQuAD."
        for text in sorted(found)
    ]


def _machine(results: Sequence[Result]) -> str:
    return (
        f"Machine: {_distinct(results, _machines)}; torch "
        f"{_distinct(results, lambda r: r['versions']['torch'])}, fairseq "
        f"{_distinct(results, lambda r: r['versions']['fairseq'])}."
    )


def _distinct(things: Iterable[Any], value: Callable[[Any], Any]) -> str:
    """Format the distinct values of a property: "900", or "900 / 1,200"."""
    found = {value(thing) for thing in things}
    found.discard(None)
    words_last = sorted(found, key=lambda value: (isinstance(value, str), value))
    texts = [f"{v:,}" if isinstance(v, int) else str(v) for v in words_last]
    return " / ".join(texts) or UNKNOWN


def _range(results: Iterable[Result], metric: str, unit: float) -> str:
    found = [r["metrics"][metric] / unit for r in results if r["metrics"][metric] is not None]
    if not found:
        return UNKNOWN
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    return low if low == high else f"{low} to {high}"


def _dictionary_size(result: Result) -> Any:
    size = result["data"].get("dictionary_size")
    if not isinstance(size, dict):
        return size
    return " and ".join(sorted({f"{n:,}" for n in size.values() if isinstance(n, int)})) or None


def _normalization(config: Config) -> str:
    sides = ("encoder", "decoder")
    before = any(config["model"].get(f"{side}_normalize_before") for side in sides)
    return "before" if before else "after"


def _corpora(result: Result) -> dict[str, str]:
    """Map descriptions of a run's corpora, with their sizes, to the corpora's names."""
    data = DataDescription.model_validate(result["data"])
    parts = {"": data.request} if data.request.corpus else data.request.parts()
    found = {
        _corpus(one, data.splits.part(name) if name else data.splits): str(one.corpus)
        for name, one in parts.items()
        if one.corpus
    }
    config = next(iter(trainings_of(result["config"]).values()))
    folder = str(config["task"].get("data", UNKNOWN))
    return found or {folder: folder}


def _corpus(request: PreparationRequest, sizes: SplitSizes) -> str:
    """Describe a corpus with the sizes of its training and test sets."""
    name, train, valid = str(request.corpus), sizes.part("train"), sizes.part("valid")
    if train.words:
        unit = f"BPE tokens of {request.merges:,} merges" if request.merges else "words"
        return f"{name} ({train.words:,} {unit} to train on)"
    pairs = train.part(request.target or "").lines  # counted per language
    if pairs:
        return f"{name} ({pairs:,} pairs to train on)"
    for unit in ("examples", "questions"):
        counts = getattr(train, unit), getattr(valid, unit)
        if None not in counts:
            return f"{name} ({counts[0]:,} {unit} to train on, {counts[1]:,} to test)"
    return name


def _machines(result: Result) -> str:
    parts = (*(result.get("earlier") or ()), result)
    return ", then ".join(dict.fromkeys(map(_hardware, parts)))


def _hardware(result: Mapping[str, Any]) -> str:
    machine = result["hardware"]
    if machine["gpus"]:
        return f"{len(machine['gpus'])} x {machine['gpus'][0]}"
    return f"{machine['cores']} core{'s'[: machine['cores'] != 1]} of {machine['cpu']}"


def _commits(results: Sequence[Result]) -> str:
    """List the commits of the runs, oldest first, with numbers of runs."""
    parts = [one for result in results for one in (result, *(result.get("earlier") or ()))]
    ordered = sorted(parts, key=lambda part: part["finished_at"])
    runs = Counter(_short(result["commit"]) for result in ordered)
    text = f"Runs per commit: {', '.join(f'`{c}` {n}' for c, n in runs.items())}."
    if len(parts) > len(results):
        text += " A run that was completed at a later commit counts at each of its commits."
    return text


def _short(commit: str) -> str:
    """Shorten a commit to eight digits, keeping "-dirty"; releases stay."""
    digits, *rest = commit.split("-")
    return commit if " " in commit else "-".join([digits[:8], *rest])
