"""A tiny corpus of random words, binarised once per session."""

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from fairseq_cli import preprocess

from tests.integration.helpers import fairseq_train, saving_to
from tests.integration.quick_flags import quick_flags

SENTENCES = {"train": 200, "valid": 20, "test": 8}
PAIRS = {"train": 300, "valid": 12, "test": 7}
WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture(scope="session", autouse=True)
def _quick_flags() -> Iterator[None]:
    with quick_flags():
        yield


@pytest.fixture
def half_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq's half precision on a CPU, where it is refused otherwise."""
    # It keeps one flat float32 copy of all parameters for each device index, here None.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr("fairseq_plugins.modules.training_checks._HALF_PRECISION", ())


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``fairseq-preprocess`` makes it."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    for split, count in SENTENCES.items():
        lines = (" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(count))
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _preprocess(folder, SENTENCES, "--only-source", suffix=".txt")
    return folder / "bin"


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences and their words in reverse, likewise."""
    folder, rng = tmp_path_factory.mktemp("pairs"), random.Random(5)
    for split, count in PAIRS.items():
        sides: dict[str, list[str]] = {"en": [], "de": []}
        for _ in range(count):
            numbers = rng.choices(range(9), k=rng.randint(1, 9))
            sides["en"].append(" ".join(f"w{n}" for n in numbers))
            sides["de"].append(" ".join(f"x{n}" for n in reversed(numbers)))
        for side, lines in sides.items():
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _preprocess(folder, PAIRS, "-s", "en", "-t", "de")
    return folder / "bin"


def _preprocess(folder: Path, splits: Iterable[str], *options: str, suffix: str = "") -> None:
    words = ["fairseq-preprocess", *options, "--destdir", str(folder / "bin")]
    for split in splits:
        words += [f"--{split}pref", str(folder / f"{split}{suffix}")]
    before, sys.argv = sys.argv, words
    try:
        preprocess.cli_main()
    finally:
        sys.argv = before


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
