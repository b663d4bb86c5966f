"""The masked language model: Table 8 and Figure 2 of LRPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.reproduce import logs
from fairseq_plugins.reproduce.commands import Run
from fairseq_plugins.reproduce.experiments.base import (
    Experiment,
    Metrics,
    Scale,
    Step,
    Training,
    scales,
)


@dataclass(frozen=True)
class MaskedLanguageModel(Experiment):
    """Trained by `masked_lm`; measured while it trains, at every validation.

    Metrics: the best `valid_loss` (base 2, per masked token), its `valid_ppl` and `best_update`,
    and the `curve`, pairs of updates and loss.
    """

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        return []

    def measure(self, training: Training, folder: Path) -> Metrics:
        curve = logs.read_validations(folder / "train.log")
        if not curve:
            raise ValueError("the training printed no validation loss")
        update, loss = min(curve, key=lambda point: point[1])
        return {
            "valid_loss": loss,
            "valid_ppl": round(2**loss, 4),
            "best_update": update,
            "curve": [list(point) for point in curve],
        }

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        shares = sorted({float(r["config"]["task"]["mask_prob"]) for r in results})
        return [f"Predicted: {' / '.join(f'{share:.0%}' for share in shares)} of the tokens."]

    def comparability(self, scale: str) -> str:
        masks = (
            "Losses are in bits per masked token of the validation set, whose masks follow from "
            "the seed, so that they are the same for every row and at every evaluation; shown is "
            "the best one of a run."
        )
        return " ".join(filter(None, (masks, super().comparability(scale))))


MASKED_LANGUAGE_MODEL = MaskedLanguageModel(
    recipe="wikitext103_mlm",
    scales=scales(
        Scale("toy", ("scripts/prepare_toy_mlm.sh",)),
        Scale(
            "mini",
            (
                "scripts/prepare_text_mlm.sh --from DIR --merges 300 --evaluation-lines 200 "
                "--output data/novels-mini",
            ),
        ),
        Scale("paper", ("scripts/prepare_wikitext103_mlm.sh",), gpus=8),
    ),
    required=("valid_loss", "valid_ppl", "curve"),
    stacks=("encoder",),
    scale_group="scale/mlm",
)
