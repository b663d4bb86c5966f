"""A tiny corpus of random words, binarised once per session."""

import random
import sys
from pathlib import Path

import pytest
from fairseq_cli import preprocess

from tests.integration.helpers import fairseq_train, saving_to

SENTENCES = {"train": 200, "valid": 20, "test": 8}
WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``fairseq-preprocess`` makes it."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    for split, count in SENTENCES.items():
        lines = (" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(count))
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["fairseq-preprocess", "--only-source", "--destdir", str(folder / "bin")]
    for split in SENTENCES:
        words += [f"--{split}pref", str(folder / f"{split}.txt")]
    before, sys.argv = sys.argv, words
    try:
        preprocess.cli_main()
    finally:
        sys.argv = before
    return folder / "bin"


@pytest.fixture(scope="session")
def checkpoints(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each attention a model trained for a few updates, so that its words differ."""
    result = {}
    for attention, encoding in (("vanilla", "lrpe_type3+t5"), ("linear", "lrpe_type2")):
        folder = tmp_path_factory.mktemp(attention)
        model = {"attention_type": attention, "position_encoding": encoding}
        budget = {"optimization.max_update": 40, "checkpoint.save_interval_updates": 0}
        fairseq_train({**saving_to(folder, data, **model), **budget})
        result[attention] = folder / "checkpoint_last.pt"
    return result
