"""Length extrapolation of Table 2's language models and of Table 8's masked ones."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from fairseq_plugins.experiments.base import Experiment, Metrics, Step
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.experiments.mlm import MASKED_LANGUAGE_MODEL
from fairseq_plugins.experiments.training import InitialCheckpoint, Training
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.extrapolation import FACTORS, SLIDING, length_metric
from fairseq_plugins.papers.tables import Adapted
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import Count, Loss, MetricsSchema, Perplexity, perplexity
from fairseq_plugins.records.runs import Run

# Tokens of the test split. At scale mini a row then takes some twenty seconds of one core.
TOKENS = {"toy": 8192, "mini": 32768, "small": 131_072, "paper": 262_144}
DIGITS = 6  # of a recorded loss


Factor = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}x$")]


class Lengths(MetricsSchema):
    """Metrics by length; extra ones are `ppl_2x` etc., None if `reasons` says why."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Perplexity | None]
    trained_length: Count
    tokens: Count
    by_position: dict[Factor, Annotated[list[Loss | None], Field(min_length=1)]]
    reasons: dict[Factor, str]
    checkpoint: str

    @model_validator(mode="after")
    def _all_lengths_are_explained(self) -> Self:
        perplexities = self.__pydantic_extra__ or {}
        for name, value in perplexities.items():
            factor = name.removeprefix("ppl_").removesuffix(SLIDING)
            if (value is None) != (factor in self.reasons):
                raise ValueError(f"{name} must be a number, or reasons must say why there is none")
        for factor in {*self.by_position, *self.reasons}:
            if f"ppl_{factor}" not in perplexities:
                raise ValueError(
                    f"ppl_{factor} is missing, but by_position or reasons has {factor}"
                )
        if not perplexities or self.by_position.keys() & self.reasons.keys():
            raise ValueError("by_position and reasons must have some length, and none in common")
        return self


class MaskedLengths(Lengths):
    """Metrics of a masked model.

    unscored: the token that is never scored.
    """

    unscored: Literal["<s>"]


def factors_of(metrics: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the lengths that a result has a number or a reason for."""
    names = {*metrics["by_position"], *metrics["reasons"]}
    return tuple(sorted(int(name.removesuffix("x")) for name in names))


@dataclass(frozen=True)
class Extrapolation(Experiment):
    """Perplexity of another table's model of the same row and seed at several lengths.

    Metrics: those of `Lengths`. by_position: by length ("2x") the mean loss in bits over each
    quarter of the training length.

    factors: lengths in multiples of the training length.
    """

    factors: tuple[int, ...] = FACTORS
    protocols: tuple[str, ...] = ("bits",)
    split: str = "test"
    trains = False

    figure_note = (
        "Above: perplexity by length, mean over seeds. Below: perplexity by the place in the "
        "window, at the longest length that has numbers; each point is the mean over a quarter "
        "of the training length. A few lines that are far above all others may leave a panel."
    )

    def at_lengths(self, factors: tuple[int, ...]) -> Self:
        return replace(self, factors=factors)

    def lacks(self, metrics: Mapping[str, Any]) -> str:
        missing = sorted(set(self.factors) - {*factors_of(metrics)})
        return f"it has no {', '.join(f'{factor}x' for factor in missing)}" if missing else ""

    def also_measuring(self, metrics: Mapping[str, Any]) -> Self:
        return self.at_lengths(tuple(sorted({*self.factors, *factors_of(metrics)})))

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        adapted = TABLES[run.table].adapted.get(run.row)
        command = [
            *("python", "-m", "fairseq_plugins", "analysis", "extrapolation"),
            *("--path", checkpoint.as_posix(), "--data", training.data.as_posix()),
            *("--split", self.split, "--lengths", ",".join(f"{f}x" for f in self.factors)),
            *("--tokens", str(TOKENS[run.scale]), "--seed", str(run.seed)),
            *(_changes(adapted) if adapted else ()),
            *(() if gpus else ("--cpu",)),
        ]
        return [Step("extrapolation.log", command, lambda log: self._read(logs.read_json(log)))]

    def _read(self, output: Mapping[str, Any]) -> Metrics:
        metrics: Metrics = {}
        lines = output["lengths"]
        for name, line in lines.items():
            for protocol in self.protocols:
                suffix = SLIDING if protocol.startswith("sliding") else ""
                bits = line.get(protocol)
                metric = f"{length_metric(int(name.removesuffix('x')))}{suffix}"
                metrics[metric] = None if bits is None else perplexity(bits)
        measured = {name: line for name, line in lines.items() if "reason" not in line}
        return {
            **metrics,
            "trained_length": output["trained_length"],
            "tokens": max((line["tokens"] for line in measured.values()), default=0),
            "by_position": {n: _rounded(line["by_position"]) for n, line in measured.items()},
            "reasons": {n: line["reason"] for n, line in lines.items() if "reason" in line},
            "checkpoint": output["checkpoint"],
        }

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        def values(metric: str) -> str:
            return " / ".join(map(str, sorted({r["metrics"][metric] for r in results})))

        notes = [self._protocol(values("trained_length"), values("tokens"))]
        further = sorted({f for r in results for f in factors_of(r["metrics"])} - {*FACTORS})
        if further:
            words = ", ".join(f"{factor}x" for factor in further)
            notes.append(f"The figure and the results' JSON also have {words}.")
        return [*notes, *_adapted(results), *_dashes(results)]

    def _protocol(self, length: str, tokens: str) -> str:
        return (
            f"The models were trained on samples of {length} tokens and are not trained further. "
            f"The first {tokens} tokens of the {self.split} split are scored at every length. Main "
            "table: consecutive windows of that length, in which every token is predicted from all "
            "tokens before it in its window, so that longer windows have fewer tokens with little "
            "context. As in Table 2, a relative encoding has Base's sinusoids beside it unless it "
            "replaces them (`alibi`, `none`): it may be these that fail beyond the training "
            "length. Rows that end in `_only` have the encoding alone."
        )

    def further_evaluations(self, results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        heading = (
            "In a sliding window that moves by a quarter of its length: every token has at least "
            "three quarters of the window before it"
        )
        return [(SLIDING, heading)] if "sliding_bits" in self.protocols else []

    def comparability(self, scale: str) -> str:
        return ""


@dataclass(frozen=True)
class MaskedExtrapolation(Extrapolation):
    """Length extrapolation of masked models, which are scored in whole windows only."""

    def _read(self, output: Mapping[str, Any]) -> Metrics:
        return {**super()._read(output), "unscored": "<s>"}

    def _protocol(self, length: str, tokens: str) -> str:
        return (
            f"The models were trained on samples of {length} tokens and are not trained further. "
            f"The masked tokens of the beginning of the {self.split} split are scored, cut into "
            f"samples of each length, at most {tokens} tokens, without the <s> that begins a "
            "sample. Masks are drawn as in training, from the seed and the sample, so they differ "
            "between lengths."
        )


def _rounded(losses: Sequence[float | None]) -> list[float | None]:
    return [None if loss is None else round(loss, DIGITS) for loss in losses]


def _adapted(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the rows that evaluate another row's model with a changed encoding or table."""
    rows = {(r["row"], a) for r in results if (a := TABLES[r["table"]].adapted.get(r["row"]))}
    changes = [
        f"`{row}` is `{a.of}` with `{' '.join(_changes(a))}`" for row, a in sorted(rows, key=str)
    ]
    if not changes:
        return []
    return [
        "Some rows evaluate the model of another row, with its positions scaled or its table "
        f"extended to the evaluated length (at 1x it is unchanged): {'; '.join(changes)}."
    ]


def _changes(adapted: Adapted) -> tuple[str, ...]:
    """Return the options that change a row's model."""
    if adapted.grow_table:
        return ("--grow-table", adapted.grow_table)
    return ("--encoding", adapted.encoding)


_SUBJECT = re.compile(r"^`[^`]+`( beside `\w+`)? under \w+ attention ")  # of a reason


def _dashes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Explain why numbers are missing: each reason once, with its rows and lengths."""
    by_reason: dict[str, dict[str, set[int]]] = {}
    for result in results:
        for name, reason in result["metrics"]["reasons"].items():
            reason = _SUBJECT.sub("the encoding ", reason)  # the same for all rows
            rows = by_reason.setdefault(reason, {})
            rows.setdefault(_cell(result), set()).add(int(name.removesuffix("x")))
    everyone = {_cell(result) for result in results}
    notes = []
    for reason, rows in sorted(by_reason.items()):
        shared = set.intersection(*(rows.get(cell, set()) for cell in everyone))
        own = {cell: factors - shared for cell, factors in sorted(rows.items())}
        places = [
            f"{who} at {', '.join(f'{factor}x' for factor in sorted(factors))}"
            for who, factors in {"every row": shared, **own}.items()
            if factors
        ]
        notes.append(f"No number for {'; '.join(places)}: {reason}.")
    return notes


def _cell(result: Mapping[str, Any]) -> str:
    return f"`{result['row']}` ({result['attention']})"


EXTRAPOLATION = LANGUAGE_MODEL.measured_by(
    Extrapolation,
    metrics=Lengths,
    origin=InitialCheckpoint("table2", same_seed=True),
    protocols=("bits", "sliding_bits"),
)
MASKED_EXTRAPOLATION = MASKED_LANGUAGE_MODEL.measured_by(
    MaskedExtrapolation, metrics=MaskedLengths, origin=InitialCheckpoint("table8", same_seed=True)
)
