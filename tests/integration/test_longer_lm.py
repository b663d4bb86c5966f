"""A language model trained on from a shorter one, its learned table grown."""

from pathlib import Path

import torch

from fairseq_plugins.evaluation import language_model as evaluation
from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_hydra_train,
    fairseq_train,
    load_checkpoint,
    saving_to,
)

TABLE = "decoder.position_embedding.weight"


def test_a_learned_table_grows_by_flags_and_by_hydra(data: Path, tmp_path: Path) -> None:
    learned = {"position_encoding": "learned", "attention_type": "vanilla"}
    last = {"checkpoint.save_interval_updates": 0}
    fairseq_train({**saving_to(tmp_path / "short", data, **learned), **last})
    short = tmp_path / "short" / "checkpoint_last.pt"
    grown = {"init_from": short, "grow_table": "interpolate"}
    longer = {
        **last,
        "task.tokens_per_sample": 2 * TOKENS_PER_SAMPLE,
        "optimization.lr": [1e-9],  # so that the weights stay where they start
    }
    fairseq_train({**saving_to(tmp_path / "flags", data, **learned, **grown), **longer})
    yaml = {**saving_to(tmp_path / "hydra", data, **learned, **grown), **longer}
    fairseq_hydra_train(tmp_path / "yaml", yaml)
    before = load_checkpoint(short)["model"]
    short.unlink()
    for route in ("flags", "hydra"):
        path = tmp_path / route / "checkpoint_last.pt"
        after = load_checkpoint(path)["model"]
        assert after[TABLE].size(0) == 2 * TOKENS_PER_SAMPLE
        torch.testing.assert_close(after[TABLE][[0, -1]], before[TABLE][[0, -1]])
        same = "decoder.layers.0.fc1.weight"
        torch.testing.assert_close(after[same], before[same])
        trained = evaluation.load(
            evaluation.EvaluationOptions(path, data)
        )  # without the first one's file
        assert trained.model.max_positions() == 2 * TOKENS_PER_SAMPLE
