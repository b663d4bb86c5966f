"""Stands for fairseq's commands in tests of the runner."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch

from fairseq_plugins.runner import checkpoints, table_command, table_runner

TOTAL = 250  # as in the configs of conftest.py
INTERVAL = 50
TRAINING_JOB = "fairseq_plugins.runner.training_job"


def save(folder: Path, updates: int, names: Sequence[str]) -> None:
    """A checkpoint as far as the runner reads it, under several names as fairseq copies it."""
    history = [{"num_updates": updates}]
    state = {"model": {"w": torch.zeros(100)}, "optimizer_history": history}
    for name in names:
        torch.save(state, folder / name)


def launched_by(launcher):
    """Within this block the workers of a table run their commands with this launcher."""
    found = lambda root, gpus, environments: nullcontext([launcher] * len(environments))  # noqa: E731
    return patch.object(table_runner, "get_launchers", found)


def run_table(root, planned, options, launcher):
    with launched_by(launcher):
        return table_command.run_table(root, planned, options)


class FakeFairseq:
    """Stands for fairseq's two commands: writes checkpoints and log lines, at once.

    stop_at: when a training is interrupted as by Ctrl-C. trained: runs, and where each began.
    """

    def __init__(self, root: Path, stop_at: int | None = None, failing: Sequence[str] = ()):
        self.root, self.stop_at, self.failing = root, stop_at, failing
        self.trained: list[tuple[str, int]] = []
        self.evaluated: list[str] = []

    def __call__(self, command, log, on_lines, keep_open=()):
        assert command[0] == sys.executable
        words = command[3:]
        if command[2] == "fairseq_cli.eval_lm":
            self.evaluated.append(words[words.index("--path") + 1])
            assert (self.root / self.evaluated[-1]).is_file()
            log.write_text("Loss (base 2): 6.5000, Perplexity: 90.51\n")
            return 0
        assert command[2] in ("fairseq_cli.hydra_train", TRAINING_JOB)
        return self._train(dict(w.split("=", 1) for w in words if "=" in w), log, on_lines)

    def _train(self, overrides, log, on_lines):
        folder = self.root / overrides["checkpoint.save_dir"]
        last = folder / "checkpoint_last.pt"
        start = checkpoints.read_updates(last) if last.exists() else 0
        self.trained.append((folder.name, start))
        with log.open("a") as output:
            output.write("num. shared model params: 12,345 (num. trained: 12,345)\n")
            if overrides["model"] in self.failing:
                output.write("RuntimeError: out of memory\n")
                return 1
            for updates in range(start + INTERVAL, TOTAL + 1, INTERVAL):
                line = json.dumps({"loss": "7.0", "wps": "5000", "num_updates": str(updates)})
                output.write(f"[train_inner] - {line}\n")
                on_lines([line])
                interval = f"checkpoint_1_{updates}.pt"
                save(folder, updates, [interval, "checkpoint_best.pt", "checkpoint_last.pt"])
                if updates == self.stop_at:
                    raise KeyboardInterrupt
        return 0
