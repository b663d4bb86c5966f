"""Training that is stopped and resumed is training that was never stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.helpers import fairseq_train, load_checkpoint, losses, saving_to

# With dropout, and with parameters and fixed draws of the encoding in the checkpoint.
CASES: dict[str, dict[str, Any]] = {
    "vanilla": {"attention_type": "vanilla", "position_encoding": "lrpe_type1+t5"},
    "linear": {"attention_type": "linear", "position_encoding": "lrpe_type3"},
    "permutation": {"attention_type": "linear", "position_encoding": "lrpe_type4"},
}
UPDATES, STOPPED_AT = 8, 3


@pytest.mark.parametrize("case", CASES)
def test_resumed_mid_epoch(case: str, data: Path, tmp_path: Path) -> None:
    model = {**CASES[case], "dropout": 0.2, "attention_dropout": 0.1}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    schedule = {"optimization.max_update": UPDATES, "dataset.batch_size": 16}
    fairseq_train({**saving_to(whole, data, **model), **schedule})
    settings = {**saving_to(cut, data, **model), **schedule}
    fairseq_train({**settings, "optimization.max_update": STOPPED_AT})
    stopped = losses(cut)
    assert list(stopped) == list(range(1, STOPPED_AT + 1))
    # A process that is killed leaves no more than the checkpoint of its last update; another
    # seed in between shows that nothing of this process's state goes into the second part.
    torch.manual_seed(99)
    fairseq_train(settings)
    resumed = losses(cut)
    assert list(resumed) == list(range(1, UPDATES + 1))
    assert resumed == pytest.approx(losses(whole), abs=1e-6)
    # The loss is still moving, and the epoch ended on the way: both would hide a false start.
    assert len({round(loss, 3) for loss in resumed.values()}) == UPDATES
    ends = [load_checkpoint(d / "checkpoint_last.pt") for d in (whole, cut)]
    assert ends[0]["extra_state"]["train_iterator"]["epoch"] == 2
    for name, value in ends[0]["model"].items():
        torch.testing.assert_close(ends[1]["model"][name], value, rtol=0, atol=1e-6)
