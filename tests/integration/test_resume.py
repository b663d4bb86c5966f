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
# An epoch of the tiny corpus has seven updates: resumed in the first epoch and in the second.
STOPS = {3: 8, 10: 16}
QUICK = ("linear", 10)


@pytest.mark.parametrize(
    ("case", "stopped_at"),
    [
        # One case in the second epoch is enough where time is short.
        pytest.param(case, stop, marks=[] if (case, stop) == QUICK else [pytest.mark.slow])
        for case in CASES
        for stop in STOPS
    ],
)
def test_resumed_mid_epoch(case: str, stopped_at: int, data: Path, tmp_path: Path) -> None:
    updates = STOPS[stopped_at]
    model = {**CASES[case], "dropout": 0.2, "attention_dropout": 0.1}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    schedule: dict[str, Any] = {"optimization.max_update": updates, "dataset.batch_size": 16}
    # As in the recipes (a word, as the flag wants one): otherwise fairseq resumes a later epoch
    # with other batches.
    schedule["dataset.update_epoch_batch_itr"] = "True"
    fairseq_train({**saving_to(whole, data, **model), **schedule})
    settings = {**saving_to(cut, data, **model), **schedule}
    fairseq_train({**settings, "optimization.max_update": stopped_at})
    stopped = losses(cut)
    assert list(stopped) == list(range(1, stopped_at + 1))
    # A process that is killed leaves no more than the checkpoint of its last update; another
    # seed in between shows that nothing of this process's state goes into the second part.
    torch.manual_seed(99)
    fairseq_train(settings)
    resumed = losses(cut)
    assert list(resumed) == list(range(1, updates + 1))
    assert resumed == pytest.approx(losses(whole), abs=1e-6)
    # The loss is still moving, and the epoch ended on the way: both would hide a false start.
    assert len({round(loss, 3) for loss in resumed.values()}) == updates
    ends = [load_checkpoint(d / "checkpoint_last.pt") for d in (whole, cut)]
    assert ends[0]["extra_state"]["train_iterator"]["epoch"] == 1 + updates // 7
    for name, value in ends[0]["model"].items():
        torch.testing.assert_close(ends[1]["model"][name], value, rtol=0, atol=1e-6)


# Within an epoch, and at its end.
@pytest.mark.parametrize(
    ("updates", "more"),
    [
        (3, {}),
        (7, {"checkpoint.no_save_optimizer_state": True}),
        pytest.param(7, {}, marks=pytest.mark.slow),
        pytest.param(3, {"checkpoint.no_save_optimizer_state": True}, marks=pytest.mark.slow),
    ],
)
def test_given_again_after_its_last_update_it_makes_none(
    updates: int, more: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    settings = {**saving_to(tmp_path, data), "optimization.max_update": updates, **more}
    settings["dataset.batch_size"] = 16
    fairseq_train(settings)
    before = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    fairseq_train(settings)
    for name, value in load_checkpoint(tmp_path / "checkpoint_last.pt")["model"].items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
