"""Generated questions: true, the same for the same seed, and not answered by the words alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.squad.examples import read_squad
from fairseq_plugins.squad.generated import generate_questions, write_questions
from fairseq_plugins.squad.metrics import normalise


def facts(version: str) -> list[tuple[list[str], dict[str, Any]]]:
    """(words of the text, question) of a file."""
    paragraphs = generate_questions(1, 150, version)["data"][0]["paragraphs"]
    return [(p["context"].split(" "), q) for p in paragraphs for q in p["qas"]]


def test_answers_are_true() -> None:
    kinds: Counter[str] = Counter()
    for words, question in facts("1.1"):
        kind, about = question["question"].split(" ")
        kinds[kind] += 1
        (answer,) = question["answers"]
        begin = " ".join(words)[: answer["answer_start"]].count(" ")
        assert normalise(answer["text"])  # else v1.1 gives a right answer no F1
        if kind == "at":
            assert begin == int(about) - 1
            continue
        assert words.count(about) == 1
        place = words.index(about)
        if kind in ("after", "before"):
            assert begin == place + (1 if kind == "after" else -1)
        elif kind == "who":
            assert begin < place
        else:
            assert kind == "whom" and begin == place + 2  # the verb, its ending, the object
    assert min(kinds.values()) > 20 and set(kinds) == {"at", "after", "before", "who", "whom"}


def test_impossible_questions_ask_for_what_is_not_there() -> None:
    found = [(words, question) for words, question in facts("2.0") if question["is_impossible"]]
    assert 150 < len(found) < 250  # a third of 600
    for words, question in found:
        assert question["question"].split(" ")[1] not in words and not question["answers"]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_files_are_of_the_version_and_repeatable(version: str, tmp_path: Path) -> None:
    files = [
        write_questions(tmp_path / name, seed=3, version=version, texts={"train": 5, "valid": 2})
        for name in ("first", "second")
    ]
    for split, count in (("train", 5), ("valid", 2)):
        assert files[0][split].read_bytes() == files[1][split].read_bytes()
        assert len(read_squad(files[0][split], version).paragraphs) == count
    other = generate_questions("4/train", 5, version)
    assert other != json.loads(files[0]["train"].read_text())


def test_no_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--valid-texts must be at least 1, but is 0"):
        write_questions(tmp_path, seed=1, version="1.1", texts={"train": 5, "valid": 0})
    assert not list(tmp_path.iterdir())
