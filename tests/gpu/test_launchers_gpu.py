"""Runs that share a GPU (`make test-gpu`): forks of one preloaded process, each with CUDA."""

import os
import sys
from pathlib import Path

import pytest

from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.launcher import get_launchers
from fairseq_plugins.runner.worker_pool import environments, side_by_side

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]


def test_forks_of_one_process_compute_on_a_gpu(tmp_path, monkeypatch):
    (tmp_path / "adds.py").write_text(
        "import sys, torch\n"
        "x = torch.full((512, 512), float(sys.argv[1]), device='cuda')\n"
        "print(torch.cuda.device_count(), (x @ x).sum().item())\n"
    )
    paths = (str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with get_launchers(tmp_path, 1, environments(3, 1)) as launchers:

        def run(number, launch):
            words = [sys.executable, "-m", "adds", str(number)]
            return launch(words, tmp_path / f"{number}.log", lambda lines: None)

        assert [s for _, s in side_by_side(run, [1, 2, 3], launchers, Interruption())] == [0] * 3
    for number in (1, 2, 3):
        expected = f"1 {float(512**3 * number**2)}"
        assert (tmp_path / f"{number}.log").read_text().splitlines()[-1] == expected
