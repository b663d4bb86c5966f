"""Attention to identical words: Table 2 and Figure 2 of the BERT paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.experiments.adapted import BERT_ADAPTED
from fairseq_plugins.experiments.base import Experiment, Metrics, Step, scales
from fairseq_plugins.experiments.mlm import BERT_CONTINUED
from fairseq_plugins.experiments.training import InitialCheckpoint, Training
from fairseq_plugins.papers import PUBLISHED
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import Count, NotNegative, StartedMetrics
from fairseq_plugins.records.runs import Run

PATTERN = "attention.npy"  # in a run's folder: the attention weights (T, T) of the figure


class Properties(StartedMetrics):
    """Properties of the attention; None if undefined, as a ratio of zero variances."""

    monotonicity: NotNegative | None
    monotonicity_20: NotNegative | None
    translation_invariance: NotNegative | None
    translation_invariance_words: NotNegative | None
    symmetry: NotNegative | None
    direction_balance: NotNegative | None
    words: Count
    length: Count
    # `analysis.indicators.measure_by_offset`, for Figure 5; None in results of earlier versions.
    by_offset: dict[str, list[float | None]] | None = None


@dataclass(frozen=True)
class IdenticalWords(Experiment):
    """Properties of the attention of another table's model of the same row and seed.

    The seed also draws the words. Metrics: those of `analysis.indicators.measure`, the number of
    `words`, the `length` of the sentences, and `by_offset`.
    """

    trains = False

    figure_note = (
        "Figure 2: the attention weights of each row, first seed; a line for each query, a "
        "column for each key. The darkness is the square root of the weight; the largest one "
        "per cent of the weights are black."
    )

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        device = () if gpus else ("--cpu",)
        command = [
            *("python", "-m", "fairseq_plugins.analysis", "identical-words"),
            *("--path", checkpoint.as_posix(), "--data", training.data.as_posix()),
            *("--output", (run.folder / PATTERN).as_posix(), "--seed", str(run.seed), *device),
        ]

        def read(log: Path) -> Metrics:
            output = logs.read_json(log)
            by_offset = {
                name: [*map(_rounded, values)] for name, values in output["by_offset"].items()
            }
            return {
                **{name: _rounded(value) for name, value in output["metrics"].items()},
                **{name: output[name] for name in ("words", "length")},
                "by_offset": by_offset,
            }

        return [Step("identical_words.log", command, read)]

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        def sizes(metric: str) -> str:
            return " / ".join(map(str, sorted({r["metrics"][metric] for r in results})))

        return [
            f"Attention of the first layer in {sizes('words')} sentences, each of which repeats "
            f"one entry of the dictionary up to {sizes('length')} tokens (with special ones); "
            "mean over heads and sentences, in float64. Each seed draws its own words and has its "
            "own model, which continues the training of one model that all rows and seeds start "
            "from."
        ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


IDENTICAL_WORDS = BERT_CONTINUED.measured_by(
    IdenticalWords,
    scales=scales(
        *(BERT_CONTINUED.scales[name] for name in ("toy", "mini")),
        BERT_ADAPTED.scales[PUBLISHED],
        *(BERT_CONTINUED.scales[name] for name in ("small", "paper")),
    ),
    metrics=Properties,
    origin=InitialCheckpoint("bert_continued", same_seed=True),
    origins={PUBLISHED: InitialCheckpoint("bert_adapted", same_seed=True)},
    leaves=(PATTERN,),
)
