"""Stands for the commands of a fine-tuning's runs in tests of the runner."""

import json
import sys

import numpy as np
import torch

from fairseq_plugins.papers.bert import BERT_PROPERTIES_TABLE
from tests.tables.fake_fairseq import TRAINING_JOB


class FakeCommands:
    """Stands for all commands: trainings write checkpoints, evaluations print numbers.

    failing: a word in the folder of a training that ends with an error. scores: by word in the
    checkpoint's path. updates: of the checkpoints.
    """

    def __init__(self, root, failing="", scores=(), updates=10_000):
        self.root, self.failing, self.scores = root, failing, dict(scores)
        self.updates = updates
        self.trained, self.started_from, self.measured = [], [], []

    def __call__(self, command, log, on_lines, keep_open=()):
        assert command[0] == sys.executable
        module, words = command[2], command[3:]
        if module in ("fairseq_cli.hydra_train", TRAINING_JOB):
            return self._train(dict(w.split("=", 1) for w in words if "=" in w), log)
        self.measured.append((module, *words))
        if module == "fairseq_plugins.glue":
            path = words[words.index("--path") + 1]
            assert (self.root / path).is_file()
            score = next((s for word, s in self.scores.items() if word in path), 50.0)
            names = ("accuracy", "f1", "matthews", "spearman", "pearson")
            log.write_text(f"a line\n{json.dumps({'metrics': dict.fromkeys(names, score)})}\n")
        elif module == "fairseq_plugins.analysis":
            assert (self.root / words[words.index("--path") + 1]).is_file()
            np.save(self.root / words[words.index("--output") + 1], np.tri(9))
            metrics = dict.fromkeys(c.metric for c in BERT_PROPERTIES_TABLE.columns)
            numbers = {**metrics, **dict(self.scores), "direction_balance": 1.25}
            by_offset = {"offsets": [1, 2], "monotonicity": [0.01234567, None]}
            output = {"metrics": numbers, "by_offset": by_offset, "words": 300, "length": 64}
            log.write_text(json.dumps(output))
        elif words[0] == "evaluate":
            log.write_text(json.dumps({"exact": 60.0, "f1": 70.0, "total": 9}, indent=2))
        return 0

    def _train(self, overrides, log):
        folder = self.root / overrides["checkpoint.save_dir"]
        self.trained.append(folder.relative_to(self.root / "checkpoints").as_posix())
        if self.failing and self.failing in folder.name:
            log.write_text("RuntimeError\n")
            return 1
        for option in ("checkpoint.finetune_from_model", "model.init_from"):
            if start := overrides.get(option):
                assert (self.root / start).is_file()
                self.started_from.append(start)
        history = [{"num_updates": self.updates}]
        state = {"optimizer_history": history, "model": {"w": torch.zeros(3)}}
        for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
            torch.save(state, folder / name)
        log.write_text('{"epoch": 1, "valid_loss": "4.0", "valid_num_updates": "10"}\n')
        return 0
