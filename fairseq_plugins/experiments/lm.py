"""The autoregressive language model: Tables 2 and 5 of LRPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.experiments.base import (
    Experiment,
    Metrics,
    Scale,
    Step,
    scales,
    unigram_baselines,
)
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.papers.floor_sweep import CLAMPED, FLOORS, OUTPUT_NORMS, PLAIN
from fairseq_plugins.records import logs
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Loss, MetricsSchema, NotNegative, Perplexity, perplexity
from fairseq_plugins.records.runs import Run

# Least number of tokens before each scored token in the second evaluation at scale paper; in the
# first one, which the table shows, it is 0. fairseq's README evaluates this model so, two sequences
# at a time; the paper does not state its context.
CONTEXT = 400


def _suffix(context: int) -> str:
    """Return the suffix of an evaluation's log and metrics; empty without extra context."""
    return f"_context_{context}" if context else ""


class Perplexities(MetricsSchema):
    """Perplexities and losses; extra metrics are the same with more context."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, NotNegative]
    valid_ppl: Perplexity
    valid_loss: Loss
    test_ppl: Perplexity
    test_loss: Loss


@dataclass(frozen=True)
class LanguageModel(Experiment):
    """Causal language model, measured by the perplexity per token of fairseq-eval-lm."""

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        contexts, batch_size = ((0, CONTEXT), 2) if run.scale == "paper" else ((0,), 32)
        return [
            _step(training, checkpoint, subset, context, batch_size, gpus)
            for context in contexts
            for subset in ("valid", "test")
        ]

    def baselines(self, data: DataDescription, scale: str) -> dict[str, dict[str, float]]:
        return unigram_baselines(data, ("valid", "test"))

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        return ["Perplexities are per token of the data: per word, or per BPE token."]

    def further_evaluations(self, results: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        suffix = _suffix(CONTEXT)
        has_context = any(f"test_ppl{suffix}" in result["metrics"] for result in results)
        return [(suffix, f"With at least {CONTEXT} tokens of context")] if has_context else []

    def comparability(self, scale: str) -> str:
        if scale == "paper":
            return (
                "The paper does not state its evaluation context; the main table scores every "
                "token with the tokens before it in its own sample."
            )
        return super().comparability(scale)


def _step(
    training: Training, checkpoint: Path, subset: str, context: int, batch_size: int, gpus: int
) -> Step:
    """Return the step that runs fairseq-eval-lm on one subset, in one process."""
    tokens = str(training.config["task"]["tokens_per_sample"])
    command = [
        *("fairseq-eval-lm", training.data.as_posix(), "--user-dir", "fairseq_plugins"),
        *("--path", checkpoint.as_posix(), "--gen-subset", subset),
        *("--sample-break-mode", "none", "--tokens-per-sample", tokens),
        *("--context-window", str(context), "--batch-size", str(batch_size)),
        *("--num-workers", "0", "--no-progress-bar"),
        # With more processes, each would print the perplexity of its own share.
        *("--distributed-world-size", "1"),
        *(() if gpus else ("--cpu",)),
    ]
    suffix = _suffix(context)

    def read(log: Path) -> Metrics:
        loss = logs.read_evaluation_loss(log)
        return {f"{subset}_ppl{suffix}": perplexity(loss), f"{subset}_loss{suffix}": loss}

    return Step(f"eval-{subset}{suffix}.log", command, read)


@dataclass(frozen=True)
class FloorSweep(LanguageModel):
    """Language model whose attentions are linear attention with different denominators."""

    def attention(self, word: str) -> dict[str, str | float]:
        if word in FLOORS:
            return {
                "attention_type": "linear",
                "linear_normalizer": "encoded",
                "min_cosine": FLOORS[word],
            }
        if word in (PLAIN, CLAMPED):
            return {"attention_type": "linear", "linear_normalizer": word}
        if word in OUTPUT_NORMS:
            own = {"linear_normalizer": "output_norm", "linear_output_norm": word}
            return {"attention_type": "linear", **own}
        return super().attention(word)

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            *super().caption_notes(results),
            "At scale `mini`, *clamped denominator* has seeds 1 to 3 of Table 2, and *floor "
            "0.2* has the runs that Table 2 had until November 2026.",
        ]

    def comparability(self, scale: str) -> str:
        return (
            "The authors' code of 2022 clamps denominators, so compare Table 2's printed numbers "
            "with that column. Data, model and budget are those of Table 2 at this scale; columns "
            "differ in the denominator alone, and rows in the encoding alone: compare columns "
            "within a row, or rows within a column."
        )


LANGUAGE_MODEL = LanguageModel(
    recipe="wikitext103_lm",
    scales=scales(
        Scale("toy", COMMANDS["toy"]),
        Scale("mini", COMMANDS["wikitext-2-mini"]),
        Scale("small", COMMANDS["novels-small"], gpus=1),
        Scale("paper", COMMANDS["wikitext-103"], gpus=8),
    ),
    metrics=Perplexities,
    sides=("decoder",),
    scale_group="scale/lm",
)
FLOOR_SWEEP = LANGUAGE_MODEL.measured_by(FloorSweep, metrics=Perplexities)
