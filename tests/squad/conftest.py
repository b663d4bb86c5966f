"""GPT-2 subwords learned from text with many scripts, and files of SQuAD made up for tests."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.data.gpt2_bpe import learn_gpt2_bpe, load_encoder

# Accents of their own, characters outside the first plane, emoji joined of several.
WORDS = (
    *("the", "1990s", "Normans'", "na\u00efve", "e\u0301clair", "東京", "日本語", "\U0001f642"),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\ufb01ne", "10,000", "U.S.", "“quoted”"),
    *("Ж\u0438знь", "أهلا", "don't", "a\u0300\u0301\u0302", "x²", "\U0001d4b3", "(so)", "end."),
)
SPACES = (" ", " ", " ", "  ", "   ", "\n", "\t", "\u00a0", " \n ")

MakeSquad = Callable[..., Path]


def random_text(rng: random.Random, words: int, known: tuple[str, ...] = WORDS) -> str:
    """Words of many scripts with spaces of many kinds."""
    return "".join(rng.choice(known) + rng.choice(SPACES) for _ in range(words))


@pytest.fixture(scope="session")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pieces; of every other word the characters are split into bytes."""
    folder = tmp_path_factory.mktemp("bpe")
    rng = random.Random(2)
    learn_gpt2_bpe([random_text(rng, 40, WORDS[::2]) for _ in range(50)], 120, folder)
    return folder


@pytest.fixture(scope="session")
def encoder(bpe: Path) -> Any:
    return load_encoder(bpe)


def question(
    name: str, context: str, *texts: str, impossible: bool | None = None
) -> dict[str, Any]:
    """A question whose answers stand where their text first occurs."""
    answers = [{"text": text, "answer_start": context.index(text)} for text in texts]
    found: dict[str, Any] = {"id": name, "question": f"What is {name}?", "answers": answers}
    return found if impossible is None else {**found, "is_impossible": impossible}


def squad(*paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The content of a file with these contexts and their questions."""
    parts = [{"context": context, "qas": questions} for context, questions in paragraphs]
    return {"version": "x", "data": [{"title": "t", "paragraphs": parts}]}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a value as JSON, indented; its path."""

    def to_file(value: Any, name: str = "file.json") -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")
        return path

    return to_file
