"""Whole trainings side by side: what is compared, and that a commit trains as itself does."""

from pathlib import Path

import pytest

from benchmarks import training
from benchmarks.training import Comparison, compare, train
from fairseq_plugins.data.prepare import prepare_toy

ROOT = Path(__file__).resolve().parents[2]


def test_losses_are_compared_update_by_update():
    before = [3.0, 2.0, 1.0]
    assert compare(before, before) == Comparison(0.0, None, 0.0)
    found = compare(before, [3.00005, 2.0, 1.3])
    assert found.largest == pytest.approx(0.3)
    assert found.first_unlike == 3
    assert found.last_hundred == pytest.approx(0.30005 / 3)
    with pytest.raises(ValueError, match="have 3 and 2"):
        compare(before, before[:2])


def test_a_checkout_without_data_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        training.main([str(tmp_path)])
    assert f"no data/wikitext-2-mini in {tmp_path}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_commit_trains_as_itself(tmp_path):
    """Bit for bit, a thread each; and float64 is another training than float32."""
    prepare_toy(tmp_path / "toy", seed=1, sentences={"train": 900, "valid": 50, "test": 50})
    given = ["model=lrpe_type2", "scale=toy", "model.attention_type=linear", "common.cpu=true"]
    given += ["run=local", "checkpoint.no_save=true", "optimization.max_update=30"]
    given += [f"task.data={tmp_path / 'toy'}"]
    results = [train((ROOT, ROOT), given, dtype) for dtype in ("float32", "float64")]
    for first, second in results:
        assert first.losses == second.losses and len(first.losses) == 30
        assert first.tokens_per_second > 0
    (single, _), (double, _) = results
    assert 0 < compare(single.losses, double.losses).largest < 1e-3
