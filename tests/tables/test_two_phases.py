"""The BERT paper's Table 6: continued pre-training at scale paper has its two phases."""

from pathlib import Path

import pytest

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.recipe import total_batch
from fairseq_plugins.records.runs import Run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("row", ["learned", "shaw_only"])
def test_first_short_samples_then_long_ones(row: str) -> None:
    planned = plan_run(CONFIGS, Run("bert_continued", "paper", row, "vanilla", 1), Devices(8))
    short, long = planned.trainings
    lengths = [t.config["task"]["tokens_per_sample"] for t in (short, long)]
    assert lengths == [128, 512]
    assert [total_batch(t.config) for t in (short, long)] == [64, 512]  # Table 6
    assert [t.config["optimization"]["lr"] for t in (short, long)] == [[5e-5], [5e-5]]
    assert {t.config["model"]["max_positions"] for t in (short, long)} == {512}
    # Five epochs and two: tokens of the same text.
    tokens = [
        n * 128 * 64 if n > 10000 else n * 512 * 512 for n in (short.max_update, long.max_update)
    ]
    assert tokens[0] / 5 == pytest.approx(tokens[1] / 2, rel=0.01)
    # The first starts from published BERT's stand-in with another encoding, the second from it.
    start = planned.pretraining.final.folder.as_posix()
    assert any(o.startswith(f"model.init_from={start}/") for o in short.overrides)
    own = f"checkpoint.finetune_from_model={short.folder.as_posix()}/"
    assert any(o.startswith(own) for o in long.overrides)
    assert planned.final is long


def test_other_scales_have_one_phase() -> None:
    for scale in ("toy", "mini", "small"):
        planned = plan_run(
            CONFIGS, Run("bert_continued", scale, "learned", "vanilla", 1), Devices(0)
        )
        assert len(planned.trainings) == 1
