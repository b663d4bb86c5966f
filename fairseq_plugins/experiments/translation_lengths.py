"""BLEU by the length of the source: Table 4's translation models, as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from fairseq_plugins.evaluation.bleu_by_length import LEAST
from fairseq_plugins.experiments.base import Metrics, Step, another_run
from fairseq_plugins.experiments.mt import TRANSLATION, Translation, generate
from fairseq_plugins.experiments.training import InitialCheckpoint, Training, Variant
from fairseq_plugins.papers.extrapolation import bleu_metric
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import Count, MetricsSchema, Percent
from fairseq_plugins.records.runs import Run

SUBSET = "test"


class BleuByLength(MetricsSchema):
    """Beside these `bleu_1_10` and the like, None where there are too few sentences."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Percent | None]
    test_bleu: Percent
    sentences: dict[str, Count]


@dataclass(frozen=True)
class TranslationLengths(Translation):
    """Trains nothing: decodes with the row's model of the same seed."""

    def variants(self, scale: str) -> Sequence[Variant]:
        return []

    def measure(self, training: Training, folder: Path) -> Metrics:
        return {}

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        decode = generate(training, checkpoint, SUBSET, gpus)
        command = [
            *("python", "-m", "fairseq_plugins.evaluation.bleu_by_length"),
            *((run.folder / decode.log).as_posix(), "--data", training.data.as_posix()),
            *("--subset", SUBSET),
        ]

        def read(log: Path) -> Metrics:
            found = logs.read_json(log)
            buckets: dict[str, Any] = found["buckets"]
            return {
                "test_bleu": found["bleu"],
                **{bleu_metric(name): bucket["bleu"] for name, bucket in buckets.items()},
                "sentences": {name: bucket["sentences"] for name, bucket in buckets.items()},
                "signature": found["signature"],
            }

        return [decode, Step("bleu-by-length.log", command, read)]

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        counts = [result["metrics"]["sentences"] for result in results]
        told = ", ".join(f"{count} of {name}" for name, count in counts[0].items())
        return [
            *super().facts(results),
            "Models are Table 4's own, or trained anew by its recipe where no checkpoint of it was "
            f"left; then {another_run('Table 4')}.",
            f"Sentences of the test set by the words of their source, as tokenised: {told}. Those "
            f"of fewer than {LEAST} sentences are a dash.",
        ]

    def comparability(self, scale: str) -> str:
        return (
            "In the figure: BLEU against the words of the source, a line for each row, the mean "
            "over seeds; buckets that are dashes are left out."
        )


TRANSLATION_LENGTHS = TranslationLengths(
    recipe=TRANSLATION.recipe,
    scales=TRANSLATION.scales,
    metrics=BleuByLength,
    sides=TRANSLATION.sides,
    scale_group=TRANSLATION.scale_group,
    data_files=TRANSLATION.data_files,
    origin=InitialCheckpoint("table4", same_seed=True),
)
