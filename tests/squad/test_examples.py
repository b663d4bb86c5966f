"""Official files: what is read, and what is refused with its place."""

import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.squad.examples import read_squad
from tests.squad.conftest import question, squad

CONTEXT = "Rollo came to Normandy."
Write = Callable[..., Path]


def test_both_versions(write: Write) -> None:
    first = question("a", CONTEXT, "Normandy", "to Normandy")
    read = read_squad(write(squad((CONTEXT, [first]))))
    (found,) = read.questions
    assert read.version == "1.1"
    assert [(a.text, a.start, a.end) for a in found.answers] == [
        ("Normandy", 14, 22),
        ("to Normandy", 11, 22),
    ]
    second = question("b", CONTEXT, impossible=True)
    read = read_squad(write(squad((CONTEXT, [{**first, "is_impossible": False}, second]))), "2.0")
    assert read.version == "2.0"
    assert [len(q.answers) for q in read.questions] == [2, 0]


def test_packed_is_the_same(write: Write) -> None:
    path = write(squad((CONTEXT, [question("a", CONTEXT, "Rollo")])))
    packed = path.with_name("file.json.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert read_squad(packed) == read_squad(path)
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"file\.json\.xz is damaged"):
        read_squad(packed)


def test_a_byte_order_mark_is_left_out(write: Write) -> None:
    path = write(squad((CONTEXT, [question("a", CONTEXT, "Rollo")])))
    marked = path.with_name("marked.json")
    marked.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_squad(marked).paragraphs == read_squad(path).paragraphs


def test_truncated(write: Write) -> None:
    path = write(squad((CONTEXT, [question("a", CONTEXT, "Rollo")])))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:9]) + "\n")
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}: Invalid JSON: .* at line"):
        read_squad(path)
    path.write_bytes(b'{"data":\n"\xff"}')
    with pytest.raises(DataError, match=r"invalid unicode .* at line 2"):
        read_squad(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_squad(path.with_name("absent.json"))


PLACE = "data[0].paragraphs[0].qas[0]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q.pop("id"), f"{PLACE}.id: Field required"),
        (lambda q: q.pop("answers"), f"{PLACE}.answers: Field required"),
        (
            lambda q: q.update(question=3),
            f"{PLACE}.question: Input should be a valid string, but is 3",
        ),
        (lambda q: q.update(answers=[]), f"{PLACE}.answers must be at least one"),
        (lambda q: q["answers"][0].pop("text"), f"{PLACE}.answers[0].text: Field required"),
        (
            lambda q: q["answers"][0].update(answer_start="0"),
            f"{PLACE}.answers[0].answer_start: Input should be a valid integer",
        ),
        (
            lambda q: q["answers"][0].update(answer_start=1),
            "must be the position of 'Rollo', but at 1 the context has 'ollo '",
        ),
        (
            lambda q: q["answers"][0].update(answer_start=-23),
            f"{PLACE}.answers[0].answer_start: Input should be greater",
        ),
        (
            lambda q: q["answers"][0].update(text=""),
            f"{PLACE}.answers[0].text: String should have at least 1",
        ),
        (lambda q: q.update(is_impossible=True), f"{PLACE}.answers must be empty where"),
        (
            lambda q: q.update(is_impossible=1),
            f"{PLACE}.is_impossible: Input should be a valid boolean",
        ),
        (lambda q: q.update(question="\ud83d"), "Invalid JSON: unexpected end of hex escape"),
    ],
)
def test_wrong_question(change: Callable[[Any], Any], message: str, write: Write) -> None:
    asked = question("a", CONTEXT, "Rollo")
    change(asked)
    path = write(squad((CONTEXT, [asked])))
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_squad(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "Input should be an object, but is []"),
        ({}, "data: Field required"),
        ({"data": [{}]}, "data[0].paragraphs: Field required"),
        ({"data": [{"paragraphs": 3}]}, "data[0].paragraphs: Input should be"),
        (
            {"data": [{"paragraphs": [{"qas": []}]}]},
            "data[0].paragraphs[0].context: Field required",
        ),
        ({"data": ["x"]}, "data[0]: Input should be an object, but is 'x'"),
        ({"data": []}, "holds no question"),
        (squad((CONTEXT, [question("a", CONTEXT, "Rollo")] * 2)), "qas[1].id must be unique"),
        (squad(("", [question("a", CONTEXT, "Rollo")])), "at 0 the context has ''"),
    ],
)
def test_wrong_file(content: Any, message: str, write: Write) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read_squad(write(content))


@pytest.mark.parametrize("asked_for", ["1.1", "2.0"])
def test_other_version(asked_for: str, write: Write) -> None:
    impossible = None if asked_for == "2.0" else False
    path = write(squad((CONTEXT, [question("a", CONTEXT, "Rollo", impossible=impossible)])))
    with pytest.raises(DataError, match=rf"must be SQuAD v{re.escape(asked_for)}"):
        read_squad(path, asked_for)
